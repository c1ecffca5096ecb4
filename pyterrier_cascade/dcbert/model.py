"""DC-BERT: one BERT for questions, one for documents, and an interaction on top of both (DC-1 to DC-6)."""

import copy
import functools
from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
import transformers
from torch import nn
from transformers.activations import ACT2FN

from pyterrier_cascade.checkpoint import check_folder
from pyterrier_cascade.checks import check_choices
from pyterrier_cascade.dcbert.variants import LinearInteraction, LSTMInteraction
from pyterrier_cascade.encoder.families import family_of, position_limit
from pyterrier_cascade.encoder.families.base import LayerParts
from pyterrier_cascade.encoder.pretrained import pretrained, silenced

INTERACTIONS = ("transformer", "linear", "lstm")
HEADS = ("late", "compare", "paper")

TOGETHER = 8
"""How many texts go through an encoder together in training."""

LATE_SCALE = 20.0
"""What a trained weight of late interaction is multiplied by: cosines of good and bad differ by a few hundredths."""


class DCBertConfig(transformers.PretrainedConfig):
    """What a DC-BERT is made of.

    Args:
        encoder: The configuration of the Hugging Face encoder, at its full depth, as a dictionary with ``model_type``.
        interaction: ``"transformer"``: K joint layers (DC-5); ``"linear"`` or ``"lstm"``: the variants (DC-35).
        joint_layers: K (DC-9).
        lower_layers: The depth of the two encoders; full unless given (DC-3).
        tied: Whether one encoder serves both questions and documents (DC-4).
        head: ``"paper"`` reads both CLS outputs side by side (DC-6); ``"compare"`` their product and difference too;
            ``"late"`` does so and adds late interaction's score of the encoders' states, with a trained weight.
        trained_on: What it was trained on; empty while it is not trained.
    """

    model_type = "dc_bert"

    def __init__(
        self,
        encoder: dict | None = None,
        interaction: str = "transformer",
        joint_layers: int = 1,
        lower_layers: int | None = None,
        tied: bool = False,
        head: str = "late",
        trained_on: dict | None = None,
        **kwargs,
    ):
        self.encoder, self.interaction, self.joint_layers = encoder or {}, interaction, joint_layers
        self.lower_layers, self.tied, self.head = lower_layers, tied, head
        self.trained_on = trained_on or {}
        super().__init__(**kwargs)

    def encoder_config(self, layers: int | None = None) -> transformers.PretrainedConfig:
        """Returns the encoder's configuration as its own class, perhaps with fewer layers."""
        config = transformers.AutoConfig.for_model(**self.encoder)
        if layers is not None:
            config.num_hidden_layers = layers
        return config

    @property
    def full_layers(self) -> int:
        """The layers of the encoder that this was made of."""
        return self.encoder_config().num_hidden_layers


class Encoded(NamedTuple):
    """Texts as token states.

    Attributes:
        states: Of all texts end to end, ``(n_tokens, width)``.
        lengths: The tokens of each text, ``(n,)``.
    """

    states: torch.Tensor
    lengths: torch.Tensor


class DCBert(transformers.PreTrainedModel):
    """Two encoders and what joins them; see :class:`DCBertConfig`."""

    config_class = DCBertConfig
    base_model_prefix = "encoders"
    supports_gradient_checkpointing = False
    _supports_sdpa = True

    def __init__(self, config: DCBertConfig):
        super().__init__(config)
        sides = ("question",) if config.tied else ("question", "document")
        self.encoders = nn.ModuleDict({side: _encoder(config.encoder_config(config.lower_layers)) for side in sides})
        width = config.encoder_config().hidden_size
        if config.interaction == "transformer":
            self.joint = JointLayers(config.encoder_config(config.joint_layers), config.head)
        else:
            self.joint = {"linear": LinearInteraction, "lstm": LSTMInteraction}[config.interaction](width)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(0.0, 0.02)
            if module.bias is not None:
                module.bias.data.zero_()

    def get_input_embeddings(self) -> nn.Module:
        """Returns the words' embeddings of the question's encoder."""
        return self.encoders["question"].get_input_embeddings()

    def encoder_of(self, side: str) -> transformers.PreTrainedModel:
        """Returns the encoder of ``"question"`` or ``"document"``."""
        return self.encoders["question" if self.config.tied else side]

    def encoded(self, side: str, inputs: Mapping[str, torch.Tensor]) -> Encoded:
        """Returns the states of padded texts, without pads, or those that are given instead."""
        if "states" in inputs:
            return Encoded(**inputs)
        encoder, mask = self.encoder_of(side), inputs["attention_mask"].bool()
        lengths, found = mask.sum(1), {}
        # A few of similar length at a time: a paragraph is many pads beside a page.
        for part in lengths.argsort().split(TOGETHER):
            longest = int(lengths[part].max())
            states = encoder(**{name: values[part, :longest] for name, values in inputs.items()}).last_hidden_state
            parts = states[mask[part, :longest]].split(lengths[part].tolist())
            found |= dict(zip(part.tolist(), parts, strict=True))
        return Encoded(torch.cat([found[number] for number in range(len(lengths))]), lengths)

    def forward(
        self,
        question_of: torch.Tensor,
        document_of: torch.Tensor,
        questions: Mapping[str, torch.Tensor],
        documents: Mapping[str, torch.Tensor],
    ) -> torch.Tensor:
        """Returns the log-odds of relevance of pairs, ``(n_pairs,)``.

        Args:
            question_of: The question of each pair as a number, ``(n_pairs,)``.
            document_of: Its document, likewise.
            questions: Padded token ids and their mask, each ``(n_questions, longest)``, or the fields of
                :class:`Encoded`.
            documents: The same of documents.
        """
        sides = self.encoded("question", questions), self.encoded("document", documents)
        return self.joint(*sides, question_of, document_of)


def _encoder(config: transformers.PretrainedConfig) -> transformers.PreTrainedModel:
    encoder = transformers.AutoModel.from_config(config)
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None
    return encoder


class _AsTheyAre(nn.Module):
    """Stands in for an encoder's embeddings: states go into the first layer with nothing added."""

    def forward(self, input_ids=None, inputs_embeds=None, *args, **kwargs) -> torch.Tensor:
        return inputs_embeds


class JointLayers(nn.Module):
    """K Transformer layers over question and document together, and a classifier on both CLS (DC-5, DC-6).

    Positions count on through question and document, by the question's true length, so that pads change nothing.
    Nothing is normalised behind the sum with positions and types.

    Args:
        config: Of an encoder of K layers.
        head: One of :data:`HEADS`.
    """

    def __init__(self, config: transformers.PretrainedConfig, head: str):
        super().__init__()
        self.encoder = _encoder(config)
        self.encoder.embeddings = _AsTheyAre()
        if hasattr(self.encoder, "embeddings_project"):
            del self.encoder.embeddings_project
        self.activation = ACT2FN[family_of(config).activation(config)]
        self.dropout = family_of(config).dropout(config)
        self.positions = nn.Embedding(position_limit(config), config.hidden_size)
        self.types = nn.Embedding(2, config.hidden_size)
        self.head = Comparison(config.hidden_size, "compare" if head == "late" else head)
        self.late = nn.Parameter(torch.ones(())) if head == "late" else None

    @property
    def layers(self) -> list[LayerParts]:
        """The K layers."""
        return family_of(self.encoder.config).layer_parts(self.encoder)

    def forward(
        self, questions: Encoded, documents: Encoded, question_of: torch.Tensor, document_of: torch.Tensor
    ) -> torch.Tensor:
        """Returns the log-odds of relevance of pairs, ``(n_pairs,)``."""
        n, m = questions.lengths[question_of], documents.lengths[document_of]
        longest = int((n + m).max())
        if longest > self.positions.num_embeddings:
            raise ValueError(
                f"a question and a document have {longest} tokens together, but there are global positions for "
                f"{self.positions.num_embeddings}; cut them first"
            )
        place = torch.arange(longest, device=n.device)
        in_question, real = place < n[:, None], place < (n + m)[:, None]
        first_q, first_d = (of.lengths.cumsum(0) - of.lengths for of in (questions, documents))
        source = torch.where(
            in_question,
            first_q[question_of][:, None] + place,
            len(questions.states) + first_d[document_of][:, None] + place - n[:, None],
        )
        states = torch.cat([questions.states, documents.states])[source.masked_fill(~real, 0)]
        late = 0.0
        if self.late is not None:
            late = LATE_SCALE * self.late * late_interaction(states, n, real & ~in_question)
        states = states + self.positions(place) + self.types((~in_question).long())
        if len(self.layers) > 1:
            owner, name = family_of(self.encoder.config).layer_list(self.encoder)
            every = getattr(owner, name)
            setattr(owner, name, every[:-1])
            try:
                states = self.encoder(inputs_embeds=states, attention_mask=real.long()).last_hidden_state
            finally:
                setattr(owner, name, every)
        both = torch.stack([states[:, 0], states[torch.arange(len(n), device=n.device), n]], 1)
        return self.head(*self.last(both, states, real).unbind(1)) + late

    def last(self, asking: torch.Tensor, states: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Returns the last layer's outputs at the rows that ask, ``(n, n_asking, width)``; no other row is computed.

        Nothing of the tokens is projected: queries take W_k instead of all keys, and W_v is applied to the weighted
        sums instead of all values. A training of a single joint layer so costs a hundredth.

        Args:
            asking: ``(n, n_asking, width)``.
            states: What they attend to, ``(n, longest, width)``.
            real: Which of these are no pads, ``(n, longest)``.
        """
        parts, dropout = self.layers[-1], functools.partial(F.dropout, p=self.dropout, training=self.training)
        heads = (self.encoder.config.num_attention_heads, -1)
        key, value = (part.weight.unflatten(0, heads) for part in (parts.key, parts.value))
        query = parts.query(asking).unflatten(-1, heads) * key.shape[1] ** -0.5
        asked = torch.einsum("nrhk,hkd->nrhd", query, key)
        logits = asked.flatten(1, 2) @ states.transpose(1, 2)
        weights = dropout(logits.float().masked_fill(~real[:, None], -torch.inf).softmax(-1)).to(states.dtype)
        context = (weights @ states).unflatten(1, asked.shape[1:3])
        bias = parts.value.bias.unflatten(0, heads) * weights.sum(-1).unflatten(1, asked.shape[1:3])[..., None]
        attended = (torch.einsum("nrhd,hkd->nrhk", context, value) + bias).flatten(2)
        attended = parts.attention_norm(dropout(parts.out(attended)) + asking)
        return parts.output_norm(dropout(parts.down(self.activation(parts.up(attended)))) + attended)


def late_interaction(states: torch.Tensor, n: torch.Tensor, in_document: torch.Tensor) -> torch.Tensor:
    """Returns the mean over the question's tokens of the best cosine with one of the document's, ``(n_pairs,)``.

    Args:
        states: Question and document end to end, ``(n_pairs, longest, width)``.
        n: The question's tokens, ``(n_pairs,)``.
        in_document: Where the document's are, ``(n_pairs, longest)``.
    """
    states = F.normalize(states.float(), dim=-1)
    longest = int(n.max())
    cosines = states[:, :longest] @ states.transpose(1, 2)
    best = cosines.masked_fill(~in_document[:, None], -torch.inf).amax(-1)
    asked = torch.arange(longest, device=n.device) < n[:, None]
    return best.masked_fill(~asked, 0).sum(1) / n


class Comparison(nn.Module):
    """Two layers with a tanh between, on the outputs of the question's CLS and of the document's (DC-6).

    Args:
        width: Of each.
        kind: ``"paper"`` reads both, side by side; ``"compare"`` their product and distance too. The paper's learns
            slowly, and only from easy negatives first: tanh of a sum has to find out what a product says at once.
    """

    def __init__(self, width: int, kind: str):
        super().__init__()
        self.kind = kind
        self.hidden = nn.Linear((2 if kind == "paper" else 4) * width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, question: torch.Tensor, document: torch.Tensor) -> torch.Tensor:
        """Returns the log-odds of relevance ``(n,)`` for ``(n, width)`` and ``(n, width)``."""
        read = [question, document]
        if self.kind == "compare":
            read += [question * document, (question - document).abs()]
        return self.out(self.hidden(torch.cat(read, -1)).tanh())[:, 0]


def load(
    source: str,
    interaction: str | None = None,
    joint_layers: int | None = None,
    lower_layers: int | None = None,
    tied: bool | None = None,
    head: str | None = None,
    trust_remote_code: bool = False,
) -> tuple[DCBert, transformers.PreTrainedTokenizerBase, str | None]:
    """Returns the DC-BERT in a folder or on the Hub, or one made of a bare encoder; its tokenizer; what is untrained.

    Args:
        source: A folder or a Hub name: a DC-BERT, or an encoder with or without a classifier (a cross-encoder too).
        interaction: As in :class:`DCBertConfig`, as are the next four; the checkpoint's, or the defaults there.
        joint_layers: K.
        lower_layers: The depth of both encoders.
        tied: Whether they are one.
        head: What the classifier reads.
        trust_remote_code: Whether code that comes with a bare encoder may run.
    """
    check_folder(source)
    wanted = {
        "interaction": interaction,
        "joint_layers": joint_layers,
        "lower_layers": lower_layers,
        "tied": tied,
        "head": head,
    }
    check_parts(**wanted)
    found, _ = transformers.PretrainedConfig.get_config_dict(source)
    with silenced():
        if found.get("model_type") == DCBertConfig.model_type:
            module, untrained = _saved(source, wanted)
        else:
            module = _fresh(source, {k: v for k, v in wanted.items() if v is not None}, trust_remote_code)
            untrained = f"the joint layers on {source!r} are fresh"
    tokenizer = transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)
    if not tokenizer.is_fast:
        raise ValueError(f"{source!r} has no fast tokenizer; save one beside it (tokenizer.json)")
    return module.eval(), tokenizer, untrained


def check_parts(
    interaction: str | None, joint_layers: int | None, lower_layers: int | None, tied: bool | None, head: str | None
) -> None:
    """Raises unless a DC-BERT can be made of such parts, whatever the encoder; None stands for the default."""
    if interaction is not None:
        check_choices(interaction=(interaction, INTERACTIONS))
    if head is not None:
        check_choices(head=(head, HEADS))
    for name, value in (("joint_layers", joint_layers), ("lower_layers", lower_layers)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, not {value!r}")


def _saved(source: str, wanted: dict) -> tuple[DCBert, str | None]:
    config = DCBertConfig.from_pretrained(source)
    for name, value in wanted.items():
        if value is not None and value != getattr(config, name):
            raise ValueError(f"{source!r} was made with {name}={getattr(config, name)!r}, not {value!r}; leave it out")
    module, info = pretrained(DCBert, source, config=config, output_loading_info=True, dtype=torch.float32)
    if missing := sorted(info["missing_keys"]):
        raise ValueError(
            f"{source!r} says that it is a DC-BERT, but these weights are missing: {', '.join(missing[:5])}"
            f"{' ...' * (len(missing) > 5)}; save it again"
        )
    return module, None if config.trained_on else f"the joint layers of {source!r} were saved before they were trained"


def _fresh(source: str, parts: dict, trust_remote_code: bool) -> DCBert:
    trust = {"trust_remote_code": trust_remote_code}
    encoder_config = transformers.AutoConfig.from_pretrained(source, **trust)
    family = family_of(encoder_config)
    if not family.has_position_table:
        raise ValueError(
            f"{source!r} is a ModernBERT, which has no table of positions to start the global ones from (DC-5); "
            "use a BERT, RoBERTa, XLM-R, ELECTRA, DistilBERT or MiniLM"
        )
    depth = encoder_config.num_hidden_layers
    for name in ("joint_layers", "lower_layers"):
        if parts.get(name, 1) > depth:
            raise ValueError(f"{name}={parts[name]}, but the encoder {source!r} has {depth} layers")
    bare = pretrained(transformers.AutoModel, source, config=encoder_config, dtype=torch.float32, **trust)
    config = DCBertConfig(encoder=bare.config.to_dict(), **parts)
    # Fresh parts are drawn alike every time, so that two rankers on the same bare encoder are the same ranker.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        module = DCBert(config).float()
    for encoder in module.encoders.values():
        # Fewer layers take the first of them.
        encoder.load_state_dict(bare.state_dict(), strict=False)
    if config.interaction == "transformer":
        _start(module.joint, bare)
    return module


@torch.no_grad()
def _start(joint: JointLayers, pretrained: transformers.PreTrainedModel) -> None:
    """Gives joint layers the last ones of a pre-trained encoder, and its positions and types (DC-5)."""
    family = family_of(pretrained.config)
    (owner, name), (source, _) = family.layer_list(joint.encoder), family.layer_list(pretrained)
    layers = getattr(owner, name)
    for own, given in zip(layers, getattr(source, name)[-len(layers) :], strict=True):
        own.load_state_dict(copy.deepcopy(given.state_dict()))
    tables = pretrained.embeddings
    # ELECTRA's tables may be narrower than its states.
    project = getattr(pretrained, "embeddings_project", None)
    positions = tables.position_embeddings.weight[-joint.positions.num_embeddings :]
    joint.positions.weight.copy_(positions if project is None else positions @ project.weight.T)
    types = getattr(tables, "token_type_embeddings", None)
    if types is None:
        joint.types.weight.zero_()
        return
    # RoBERTa knows one type only: both sides start from it.
    both = types.weight[[0, min(1, types.num_embeddings - 1)]]
    joint.types.weight.copy_(both if project is None else both @ project.weight.T)


transformers.AutoConfig.register(DCBertConfig.model_type, DCBertConfig)
transformers.AutoModel.register(DCBertConfig, DCBert)
