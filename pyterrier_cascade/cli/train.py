"""Training a ranker."""

import argparse
import inspect
import tempfile
from pathlib import Path
from typing import IO, Any

from pyterrier_cascade import registry
from pyterrier_cascade.cli import arguments

HELP = "train a ranker and save it; prints the course of the training as a table"
EXAMPLE = "cascade --model my-encoder --data as2:wikiqa --set epochs=2 --output my-cascade"
COURSE = ["update", "epoch", "loss", "dev_map"]
"""The first columns of the output."""
OF_EACH_STEP = ("learning_rate", "epochs")
"""The settings of a training that TANDA has once for each of its steps, as ``transfer_rate`` and ``adapt_rate``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    kinds = [one.command for one in registry.RERANKERS if one.training is not None]
    parser.add_argument("kind", metavar="KIND", choices=kinds, help=", ".join(kinds))
    parser.add_argument("--model", help="a folder or Hub name to start from; a hierarchical ranker needs none")
    parser.add_argument("--output", metavar="FOLDER", required=True, help="where the ranker is saved")
    parser.add_argument(
        "--set",
        dest="training",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the training; may be repeated. With folder=..., a killed training goes on when it is "
        "started again",
    )
    arguments.add_settings(parser, "the ranker, which is not saved with it")
    group = parser.add_argument_group(
        "questions (files have a header: qid, query, docno, text, label; for grades use --set relevant_from=2)"
    )
    one = group.add_mutually_exclusive_group(required=True)
    one.add_argument("--data", metavar="NAME", help="a data set with splits train and dev, such as as2:wikiqa")
    one.add_argument("--train", metavar="FILE", help="training questions, a TSV file")
    group.add_argument("--dev", metavar="FILE", help="development questions, a TSV file; they choose the best weights")
    group.add_argument("--folder", help="the folder with the data set's files")
    group.add_argument("--transfer", metavar="FILE_OR_NAME", help="train on these questions first (TANDA)")
    group.add_argument("--transfer-folder", metavar="FOLDER", help="the folder with that data set's files")


def run(options: argparse.Namespace, out: IO[str]) -> None:
    """Trains a ranker, saves it, and writes the course of the training."""
    from pyterrier_cascade.cli import data, settings
    from pyterrier_cascade.training.processes import leads

    reranker = registry.by_command(options.kind)
    known = settings.declared(reranker.training_class)
    ranker = _ranker(options, reranker)
    if options.transfer:
        given = settings.parsed(options.training, _of_tanda(known), "--set")
        train, dev = _questions(options, ranker.text_field)
        learner = _tanda(options, ranker, known, given)
    else:
        learner = ranker.with_training(**settings.parsed(options.training, known, "--set"))
        train, dev = _questions(options, ranker.text_field)
    check_output(options.output)
    learner.fit_candidates(train, dev)
    if not leads():
        return
    trained = learner.ranker if options.transfer else learner
    trained.save_pretrained(options.output, data=options.data or Path(options.train).name)
    first = ["step", *COURSE] if options.transfer else COURSE
    others = [name for name in learner.history.columns if name not in first]
    data.write_table(learner.history.reindex(columns=[*first, *others]), out)


def check_output(path: str) -> None:
    """Makes a folder, or raises where a ranker cannot be saved in it, before hours are spent."""
    from pyterrier_cascade.registry import CONFIG, holds

    folder = Path(path)
    if (folder / CONFIG).exists() or holds(path):
        raise FileExistsError(f"{path!r} holds a model already; give another --output, or delete it")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _ranker(options: argparse.Namespace, reranker: registry.Reranker) -> Any:
    """Returns the ranker to train, on the weights of a model, or fresh."""
    from pyterrier_cascade.cli import models, settings
    from pyterrier_cascade.early_exit.policy import Policy
    from pyterrier_cascade.early_exit.ranker import EarlyExitRanker

    cls, verbose = reranker.cls, not options.quiet
    if options.model:
        # In training no candidate leaves early, so a policy would have no effect.
        skip = settings.declared(Policy) if issubclass(cls, EarlyExitRanker) else ()
        return models.load(options.model, reranker, options.settings, skip=skip, verbose=verbose)
    model = inspect.signature(cls.__init__).parameters.get("model")
    if model is None or model.default is model.empty:
        raise ValueError(f"a {options.kind} is trained from an encoder; give --model")
    given = settings.parsed(options.settings, settings.declared(cls), "--with")
    return settings.make(cls, given, verbose=verbose)


def _questions(options: argparse.Namespace, field: str):
    """Returns the lists to train on, and the lists that choose the weights, or None without such lists."""
    from pyterrier_cascade.cli import data

    if options.train:
        return data.labelled(options.train, field), data.labelled(options.dev, field) if options.dev else None
    if options.dev:
        raise ValueError("--dev goes with --train; a data set has development questions of its own")
    train, dev = (data.dataset(f"{options.data}/{split}", options.folder) for split in ("train", "dev"))
    return train.get_candidates(), dev.get_candidates()


def _of_tanda(known: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings of TANDA with their types: its own, and those that both steps share.

    Args:
        known: The settings of the ranker's training.
    """
    from pyterrier_cascade import Tanda
    from pyterrier_cascade.cli import settings

    skip = settings.ELSEWHERE | {"ranker", "transfer", "test", "transfer_training", "adapt_training"}
    shared = {name: hint for name, hint in known.items() if name not in OF_EACH_STEP}
    return shared | settings.declared(Tanda, skip=skip)


def _tanda(options: argparse.Namespace, ranker: Any, known: dict[str, Any], given: dict[str, Any]) -> Any:
    """Returns the recipe.

    Args:
        options: The options of the command.
        ranker: The ranker to train.
        known: The settings of the ranker's training.
        given: Settings as :func:`_of_tanda` names them.
    """
    from pyterrier_cascade import Tanda
    from pyterrier_cascade.cli import data

    shared = {name: given.pop(name) for name in [*given] if name in known and name != "folder"}
    name = options.transfer
    if Path(name).is_file():
        transfer = data.labelled(name, ranker.text_field)
    elif ":" in name:
        transfer = data.dataset(f"{name}/train", options.transfer_folder or options.folder)
    else:
        raise FileNotFoundError(f"--transfer {name!r} is neither a file nor a data set, such as as2:asnq")
    # The transfer set must not ask the test questions.
    test = data.dataset(f"{options.data}/test", options.folder) if options.data else None
    return Tanda(ranker, transfer, test=test, transfer_training=shared, adapt_training=shared, **given)
