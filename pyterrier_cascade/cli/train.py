"""Training a ranker."""

import argparse
import tempfile
from pathlib import Path
from typing import IO

from pyterrier_cascade.cli import arguments
from pyterrier_cascade.cli.sweep import PLAN

HELP = "train a ranker and save it; prints the course of the training as a TSV"
EXAMPLE = "cascade --model my-encoder --data as2:wikiqa --set epochs=2 --output my-cascade"
KINDS = ("crossencoder", "cascade", "dcbert", "hierarchical")
COURSE = ["update", "epoch", "loss", "dev_map"]
BY_STEP = ("learning_rate", "epochs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("kind", metavar="KIND", choices=KINDS, help=", ".join(KINDS))
    parser.add_argument("--model", help="a folder or Hub name to start from; hierarchical rankers need none")
    parser.add_argument("--output", metavar="FOLDER", required=True, help="where the ranker is saved")
    parser.add_argument(
        "--set",
        dest="training",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the training; may be repeated. With folder=..., what was killed goes on",
    )
    arguments.settings(parser, "the ranker, which is not saved with it")
    group = parser.add_argument_group("questions (files have a header: qid, query, docno, text, label)")
    one = group.add_mutually_exclusive_group(required=True)
    one.add_argument("--data", metavar="NAME", help="a data set with splits train and dev, such as as2:wikiqa")
    one.add_argument("--train", metavar="FILE", help="training questions, a TSV")
    group.add_argument("--dev", metavar="FILE", help="development questions, a TSV; they choose the best weights")
    group.add_argument("--folder", help="the folder with the data set's files")
    group.add_argument("--transfer", metavar="FILE_OR_NAME", help="train on these questions before (TANDA)")
    group.add_argument("--transfer-folder", metavar="FOLDER", help="the folder with that data set's files")


def run(options: argparse.Namespace, out: IO[str]) -> None:
    """Trains, saves, and writes the course of the training."""
    from pyterrier_cascade.cli import data, models, settings
    from pyterrier_cascade.training.processes import leads

    known = settings.declared(models.training_class(options.kind))
    ranker = _ranker(options)
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
    named = {"data": options.data or Path(options.train).name} if options.kind == "cascade" else {}
    (learner.ranker if options.transfer else learner).save_pretrained(options.output, **named)
    first = ["step", *COURSE] if options.transfer else COURSE
    others = [name for name in learner.history.columns if name not in first]
    data.write_table(learner.history.reindex(columns=[*first, *others]), out)


def check_output(path: str) -> None:
    """Makes a folder, or raises where a ranker cannot be saved in it, before hours are spent."""
    folder = Path(path)
    if (folder / "config.json").exists():
        raise FileExistsError(f"{path!r} holds a model already; give another --output, or delete it")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _ranker(options: argparse.Namespace):
    from pyterrier_cascade.cli import models

    if options.model:
        # Scores are learnt without dropping anybody.
        skip = ("alpha", "counts", *PLAN) if options.kind in ("cascade", "sequential") else ()
        return models.load(options.model, options.kind, options.settings, skip=skip, verbose=not options.quiet)
    if options.kind != "hierarchical":
        raise ValueError(f"a {options.kind} is trained from an encoder; give --model")
    return _fresh(options)


def _fresh(options: argparse.Namespace):
    """Returns a fresh hierarchical ranker; the sizes of its architecture are settings among the others."""
    from pyterrier_cascade import HierarchicalArchitecture, HierarchicalRanker
    from pyterrier_cascade.cli import settings

    own = settings.declared(HierarchicalRanker, skip=settings.ELSEWHERE | {"architecture"})
    sizes = settings.declared(HierarchicalArchitecture)
    given = settings.parsed(options.settings, own | sizes, "--with")
    architecture = HierarchicalArchitecture(**{name: given.pop(name) for name in sizes if name in given})
    return HierarchicalRanker(**given, architecture=architecture, verbose=not options.quiet)


def _questions(options: argparse.Namespace, field: str):
    """Returns the lists to train on, and those that choose the weights or None."""
    from pyterrier_cascade.cli import data

    if options.train:
        return data.labelled(options.train, field), data.labelled(options.dev, field) if options.dev else None
    if options.dev:
        raise ValueError("--dev goes with --train; a data set has development questions of its own")
    sets = [data.dataset(f"{options.data}/{split}", options.folder) for split in ("train", "dev")]
    return [one.get_candidates() for one in sets]


def _of_tanda(known: dict) -> dict:
    """Returns what can be set of TANDA: its own settings, and those of both its steps."""
    from pyterrier_cascade import Tanda
    from pyterrier_cascade.cli import settings

    skip = settings.ELSEWHERE | {"ranker", "transfer", "test", "transfer_training", "adapt_training"}
    of_steps = {name: hint for name, hint in known.items() if name not in BY_STEP}
    return of_steps | settings.declared(Tanda, skip=skip)


def _tanda(options: argparse.Namespace, ranker, known: dict, given: dict):
    from pyterrier_cascade import Tanda
    from pyterrier_cascade.cli import data

    of_steps = {name: given.pop(name) for name in [*given] if name in known and name != "folder"}
    name = options.transfer
    if Path(name).is_file():
        transfer = data.labelled(name, ranker.text_field)
    elif ":" in name:
        transfer = data.dataset(f"{name}/train", options.transfer_folder or options.folder)
    else:
        raise FileNotFoundError(f"--transfer {name!r} is neither a file nor a data set, such as as2:asnq")
    # The questions that will be asked in the end must not be in what is transferred from.
    test = data.dataset(f"{options.data}/test", options.folder) if options.data else None
    return Tanda(ranker, transfer, test=test, transfer_training=of_steps, adapt_training=of_steps, **given)
