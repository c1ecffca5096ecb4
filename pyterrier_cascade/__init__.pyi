from pyterrier_cascade.bm25 import BM25 as BM25
from pyterrier_cascade.cascade.head_learning import Distillation as Distillation
from pyterrier_cascade.cascade.ranker import Cascade as Cascade
from pyterrier_cascade.cascade.training import CascadeTraining as CascadeTraining
from pyterrier_cascade.crossencoder.ranker import CrossEncoder as CrossEncoder
from pyterrier_cascade.crossencoder.sequential import SequentialReranker as SequentialReranker
from pyterrier_cascade.dcbert.cache import DocumentCache as DocumentCache
from pyterrier_cascade.dcbert.cached_ranker import CachedRanker as CachedRanker
from pyterrier_cascade.dcbert.ranker import DCBERT as DCBERT
from pyterrier_cascade.dcbert.settings import DCBertTraining as DCBertTraining
from pyterrier_cascade.dcbert.supervision import answer_qrels as answer_qrels
from pyterrier_cascade.dcbert.supervision import sampled_negatives as sampled_negatives
from pyterrier_cascade.early_exit.certificate import Certificate as Certificate
from pyterrier_cascade.early_exit.plots import river as river
from pyterrier_cascade.early_exit.reliability import reliability as reliability
from pyterrier_cascade.early_exit.risks import FirstAnswerLost as FirstAnswerLost
from pyterrier_cascade.early_exit.risks import RankingLoss as RankingLoss
from pyterrier_cascade.early_exit.risks import TopLost as TopLost
from pyterrier_cascade.early_exit.stage import FractionCutoff as FractionCutoff
from pyterrier_cascade.early_exit.trace import Trace as Trace
from pyterrier_cascade.hierarchical.model import HierarchicalArchitecture as HierarchicalArchitecture
from pyterrier_cascade.hierarchical.ranker import HierarchicalRanker as HierarchicalRanker
from pyterrier_cascade.hierarchical.training import HierarchicalTraining as HierarchicalTraining
from pyterrier_cascade.measures.cost import RelativeCost as RelativeCost
from pyterrier_cascade.measures.cost import RelativeTokenCost as RelativeTokenCost
from pyterrier_cascade.measures.cost import Survival as Survival
from pyterrier_cascade.measures.open_domain import EM as EM
from pyterrier_cascade.measures.open_domain import PBT as PBT
from pyterrier_cascade.measures.open_domain import PTB as PTB
from pyterrier_cascade.measures.open_domain import em_drop as em_drop
from pyterrier_cascade.runs import Runs as Runs
from pyterrier_cascade.scale.ray import RayPool as RayPool
from pyterrier_cascade.tanda.baselines import FineTune as FineTune
from pyterrier_cascade.tanda.tanda import Tanda as Tanda
from pyterrier_cascade.training.settings import Training as Training

__version__: str
__all__: list[str]
