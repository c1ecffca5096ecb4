"""The variants that the paper compares with: a linear and an LSTM interaction instead of joint layers (DC-34, DC-35).

The paper names them and gives no details; DC-35 says how we read it.
"""

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

if TYPE_CHECKING:
    from pyterrier_cascade.dcbert.joint import Encoded


def first_states(texts: "Encoded") -> torch.Tensor:
    """Returns the state of each text's first token, ``(n, width)``."""
    return texts.states[texts.lengths.cumsum(0) - texts.lengths]


class LinearInteraction(nn.Module):
    """``[q; d; q - d]`` of both CLS through a linear map, tanh, dropout, and a classifier.

    Args:
        width: The width of the states.
    """

    def __init__(self, width: int):
        super().__init__()
        self.hidden, self.out = nn.Linear(3 * width, width), nn.Linear(width, 1)
        self.dropout = nn.Dropout(0.1)

    def forward(
        self, questions: "Encoded", documents: "Encoded", question_of: torch.Tensor, document_of: torch.Tensor
    ) -> torch.Tensor:
        """Returns the log-odds of relevance of pairs, ``(n_pairs,)``."""
        q, d = first_states(questions)[question_of], first_states(documents)[document_of]
        return self.out(self.dropout(self.hidden(torch.cat([q, d, q - d], -1)).tanh()))[:, 0]


class LSTMInteraction(nn.Module):
    """A two-layer BiLSTM over the tokens of the document, each beside its attention-weighted sum of the question.

    Its outputs are projected to 128 and combined with the projected mean of the question in a bilinear map. The maximum
    over the tokens is classified.

    Args:
        width: The width of the states.
        hidden: The width of the LSTM in each direction, of both projections, and of the bilinear map.
    """

    def __init__(self, width: int, hidden: int = 128):
        super().__init__()
        self.attention = nn.Linear(width, width)
        self.lstm = nn.LSTM(2 * width, hidden, num_layers=2, bidirectional=True, batch_first=True, dropout=0.3)
        self.of_document, self.of_question = nn.Linear(2 * hidden, hidden), nn.Linear(width, hidden)
        self.bilinear, self.out = nn.Bilinear(hidden, hidden, hidden), nn.Linear(hidden, 1)
        self.dropout = nn.Dropout(0.3)

    def forward(
        self, questions: "Encoded", documents: "Encoded", question_of: torch.Tensor, document_of: torch.Tensor
    ) -> torch.Tensor:
        """Returns the log-odds of relevance of pairs, ``(n_pairs,)``."""
        (q, q_mask), (d, d_mask) = (_padded(of, which) for of, which in zip(
            (questions, documents), (question_of, document_of), strict=True))  # fmt: skip
        similarity = self.attention(d).relu() @ self.attention(q).relu().transpose(1, 2)
        attended = similarity.masked_fill(~q_mask[:, None], -torch.inf).softmax(-1) @ q
        lengths = documents.lengths[document_of].cpu()
        packed = pack_padded_sequence(
            self.dropout(torch.cat([d, attended], -1)), lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=d.shape[1])
        mean = (q * q_mask[..., None]).sum(1) / q_mask.sum(1, keepdim=True)
        # The question is applied to the bilinear tensor first: then each question has a matrix and no token a tensor.
        to_meet = torch.einsum("oij,nj->nio", self.bilinear.weight, self.of_question(mean))
        meeting = self.of_document(self.dropout(states)) @ to_meet + self.bilinear.bias
        best = meeting.masked_fill(~d_mask[..., None], -torch.inf).amax(1)
        return self.out(self.dropout(best))[:, 0]


def _padded(texts: "Encoded", which: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns some texts' states ``(n, longest, width)`` and where they are real ``(n, longest)``."""
    parts = texts.states.split(texts.lengths.tolist())
    lengths = texts.lengths[which]
    states = pad_sequence([parts[one] for one in which.tolist()], batch_first=True)
    return states, torch.arange(states.shape[1], device=lengths.device) < lengths[:, None]
