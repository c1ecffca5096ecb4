"""Tiny seeded encoders of every supported family, made on the spot: nothing is downloaded."""

import string

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

FAMILIES = ("bert", "roberta", "xlm-roberta", "electra", "distilbert", "modernbert")

_SIZES = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
_CONFIGS = {
    "bert": transformers.BertConfig,
    "roberta": transformers.RobertaConfig,
    "xlm-roberta": transformers.XLMRobertaConfig,
    "electra": transformers.ElectraConfig,
    "modernbert": transformers.ModernBertConfig,
}


def wordpiece(types: bool) -> transformers.PreTrainedTokenizerFast:
    """BERT's way: [CLS] query [SEP] text [SEP], with token types or (DistilBERT) without."""
    letters = string.ascii_lowercase + string.digits + string.punctuation
    words = ["the", "ship", "town", "who", "what", "when", "founded", "launched", "is", "of", "in", "was"]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + c for c in letters), *words]
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        mask_token="[MASK]",
        model_input_names=["input_ids", *["token_type_ids"] * types, "attention_mask"],
        model_max_length=512,
    )


def byte_level() -> transformers.PreTrainedTokenizerFast:
    """RoBERTa's way: <s> query </s></s> text </s>, over bytes, without token types."""
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token="<mask>",
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=512,
    )


def config(family: str, layers: int, tokenizer, **more):
    """Returns the family's configuration in a tiny size."""
    ids = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    ids |= {name: value for name, value in more.items() if name != "max_position_embeddings"}
    if family == "distilbert":
        return transformers.DistilBertConfig(dim=32, n_heads=2, hidden_dim=64, n_layers=layers, **ids)
    positions = more.get("max_position_embeddings", 514 if "roberta" in family else 512)
    sizes = _SIZES | {"num_hidden_layers": layers, "max_position_embeddings": positions}
    if family == "electra":
        sizes["embedding_size"] = 16
    if family == "modernbert":
        sizes["local_attention"] = 16
        ids |= {"cls_token_id": 0, "bos_token_id": 0, "eos_token_id": 2, "sep_token_id": 2}
    return _CONFIGS[family](**(sizes | ids))


def save(path, family: str = "bert", layers: int = 2, outputs: int | None = 2, seed: int = 0, **more) -> str:
    """Writes a seeded model with its tokenizer and returns the folder.

    ``outputs`` is the number of the classifier's outputs; None saves the bare encoder. Weights are larger than at a
    usual start, so that scores differ clearly from candidate to candidate.
    """
    by_bytes = family in ("roberta", "xlm-roberta", "modernbert")
    tokenizer = byte_level() if by_bytes else wordpiece(types=family != "distilbert")
    torch.manual_seed(seed)
    if outputs is None:
        model = transformers.AutoModel.from_config(config(family, layers, tokenizer, **more))
    else:
        made = config(family, layers, tokenizer, num_labels=outputs, **more)
        model = transformers.AutoModelForSequenceClassification.from_config(made)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "norm" not in name.lower():
                parameter.normal_(0, 0.2)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def limit_tokenizer(folder: str, most: int) -> str:
    """Gives the saved tokenizer a number of its own, as sentence-transformers does, and returns the folder."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.model_max_length = most
    tokenizer.backend_tokenizer.enable_truncation(most)
    tokenizer.save_pretrained(folder)
    return folder
