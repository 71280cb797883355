"""Times smelt, its peers and other builds of smelt alternately in one process.

python3 bench/peers BENCHMARK [options]     BENCHMARK --help: its rows, options and checks
"""

import argparse
import importlib
import inspect
import sys

import accuracy
import harness

BENCHMARKS = {  # the class that parses a row's name, and the measurement
    "forward": ("forward", "Row", "sparse_attn; peer: FlashMLA"),
    "backward": ("backward", "Row", "sparse_attn, backward; peer: cuDNN"),
    "training_step": ("training_step", "Row", "a step in PyTorch; peer: FlashMLA with cuDNN"),
    "msa_step": ("msa_step", "Row", "a step of MiniMax's attention in PyTorch; peer: flash-msa"),
    "indexer_logits": ("indexer", "Logits", "peers: DeepGEMM, cuDNN"),
    "topk_select": ("indexer", "Select", "peers: torch.topk, cuDNN"),
    "indexer_topk": ("indexer", "Choice", "peers: logits of DeepGEMM or cuDNN, then cuDNN's top-k"),
    "sparse_scores": ("indexer_training", "Target", "peer: cuDNN"),
    "indexer_scores": ("indexer_training", "Scores", "peer: cuDNN"),
    "indexer_bwd": ("indexer_training", "Gradients", "peer: cuDNN"),
}


def description(module, row_class):
    import attention

    texts = [module.__doc__, row_class.__dict__.get("__doc__")]
    if issubclass(row_class, attention.Row):
        texts.append(f"Names of rows: {attention.NAMES}")
    return "\n\n".join(inspect.cleandoc(text) for text in texts if text)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    arguments = sys.argv[1:] if arguments is None else arguments
    for name, (module, row_class, what) in BENCHMARKS.items():
        if arguments[:1] != [name]:  # its module may need further packages
            kinds.add_parser(name, help=what)
            continue
        module = importlib.import_module(module)
        row_class = getattr(module, row_class)
        each = kinds.add_parser(
            name, help=what, description=description(module, row_class),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        harness.add_options(each, row_class)
        each.set_defaults(run=lambda options, row_class=row_class: harness.run(row_class, options))
    each = kinds.add_parser(
        "accuracy", help="FlashMLA's test cases, compared with double precision", description=accuracy.__doc__
    )
    accuracy.add_options(each)
    each.set_defaults(run=accuracy.run)
    options = parser.parse_args(arguments)
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
