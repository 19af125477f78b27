"""
Why a mutant that no test has killed is equivalent, so that no test could kill it, or says nothing about the verifier.

Each explanation is of lines that match, in files that match: it is read again whenever such a mutant survives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """
    Why mutants by these operators, of lines like these that became lines like those, survive.

    `is_equivalent`: whatever is given to the module, the mutant and the original say the same.
    """

    files: str = ".*"
    operators: str = ".*"
    lines: str
    became: str = ""
    reason: str
    is_equivalent: bool = True

    def fits(self, *, path: str, operator: str, line: str, after: str) -> bool:
        """Tell whether this is the explanation of a mutant: `line` is the line as it was, `after` as it is."""
        return bool(
            re.fullmatch(self.files, path)
            and re.search(self.operators, operator)
            and re.search(self.lines, line)
            and re.search(self.became, after)
        )


_ONLY_THE_TEXT: Final = "only the text of an error: tests hold the class of the fault and the index, not its words"

EXPLANATIONS: Final = (
    Explanation(
        lines=r"@dataclass\(|^class |field\(",
        reason="frozen, slots and kw_only forbid what no code does: nothing assigns to a field or names it by position",
    ),
    Explanation(
        lines=r"^(?!if |elif |while |return |assert )(?!.*\bindex=)"
        r".*\b((expected|found|where)\s*=\s*f?\"|raise \w+Error\()",
        operators="Binary|Number|Replace(Or|And)|AddNot",
        reason=_ONLY_THE_TEXT,
        is_equivalent=False,
    ),
    Explanation(
        lines=r"^(expected|found) = .* if .* else ",
        operators="Comparison",
        reason=_ONLY_THE_TEXT,
        is_equivalent=False,
    ),
    Explanation(
        operators="_(Eq_Is|NotEq_IsNot)$",
        lines=r"[!=]= (NO_CONTROL|HASH_SIZE_BYTES)\b",
        became=r"is (not )?(NO_CONTROL|HASH_SIZE_BYTES)\b",
        reason="CPython has one object for each integer from -5 to 256",
    ),
    Explanation(
        lines=r"reversed\(sorted|_TOLD_ENTRIES|_CHECKPOINTS_AHEAD|^_PAGE: Final",
        reason="how often, not what",
        is_equivalent=False,
    ),
    Explanation(
        files="ledger/format/merkle.py",
        operators="(_Eq_LtE|_NotEq_Gt|_Gt_NotEq|_LtE_Eq)$",
        lines=r"bit_count\(\) == 1|\bsn [!=]= 0|\bfn [!=]= 0",
        reason="the number is never below: sizes and indices are checked, and then only shifted",
    ),
    Explanation(
        files="ledger/format/merkle.py",
        operators="_NotEq_GtE$",
        lines=r"^while not fn & 1 and fn != 0:",
        reason="a number that is even and not zero is odd before it is zero",
    ),
    *(
        Explanation(
            files="ledger/format/entry.py",
            lines=lines,
            became=became,
            reason="the short way is taken by fewer entries; the others go the long way, which says the same",
        )
        for lines, became in (
            (r"^if match is None or len", r"len\(data\) (!=|>=)"),
            (r"^_BRACKETS_MAX =", r"DEPTH_MAX (//|>>|/) 2$|DEPTH_MAX - [3-9]$"),
            (r"^or \(len\(parts\) > 2", r"len\(parts\) (!=|>=) 2|len\(parts\) > [01]\b"),
            (r"fromisoformat\(text", r"text\[:- ?0\]"),
            (r"^return names == sorted", "names < sorted"),
            (r"^return True$", "^return False$"),
        )
    ),
    Explanation(
        files="ledger/format/entry.py",
        lines=r"fromisoformat\(text\[:-1\]",
        became=r"text\[:- ?[2-7]\]",
        reason="the pattern has matched all of it; only whether there is such a day is asked here",
    ),
    Explanation(
        files="ledger/verify/anchored.py",
        operators="ReplaceComparisonOperator_Eq_(Is|GtE)$",
        lines=r"key\.algorithm == ML_DSA_44_COSIGNATURE",
        became=r"key\.algorithm (is|>=) ML_DSA_44_COSIGNATURE",
        reason="CPython has one object for each integer from -5 to 256, and no algorithm has a higher number",
    ),
    Explanation(
        operators="ReplaceComparisonOperator_(Eq_Is|NotEq_IsNot)$",
        lines=r"[!=]= TILE_WIDTH",
        reason="CPython has one object for each integer up to 256, and no tile is wider",
    ),
    Explanation(
        files="ledger/format/merkle.py",
        operators="_Lt_LtE$",
        lines=r"^if not 0 < size1 < size2:$",
        reason="equal sizes have been answered above",
    ),
    Explanation(
        operators="ReplaceComparisonOperator_(Is_Eq|Eq_Is|NotEq_IsNot|IsNot_NotEq)$",
        lines=r"\bis (not )?None|fault is |kind is ",
        reason="`==` and `is` agree for None, booleans and members of an enumeration",
    ),
    Explanation(
        operators="ReplaceBinaryOperator_(BitOr|BitXor|Add)_(BitOr|BitXor|Add)$",
        lines=r"<<|\|=? ",
        reason="bits that do not overlap: sum and union are equal",
    ),
    Explanation(
        files="ledger/format/proof.py",
        lines=r"lines\.pop\(1\)",
        became=r"len\(lines\) != 1\b",
        reason="what was split has at least one line",
    ),
    Explanation(
        files="ledger/verify/directory.py",
        operators="_GtE_Eq$",
        lines=r"^if same >= min\(width, found\)",
        reason="no more entries agree than both have",
    ),
    Explanation(
        files="ledger/verify/database_pages.py",
        lines=r"^is_rooted = end - first < TILE_WIDTH",
        became=r"^is_rooted = end \| first < TILE_WIDTH",
        reason="a tile that is not complete is not stored, and so has no root beside it",
    ),
    Explanation(lines=r"\.load_fast_path\(", reason="how fast, not what", is_equivalent=False),
    Explanation(
        files="ledger/format/verification.py",
        lines=r"^if len\(self\) <= _FEW|^twice = ordered",
        became=r"len\(self\) > _FEW|ordered\[1:\] (<=|is not) ordered",
        reason="more groups are suspected than need be; each of those is looked at by itself",
    ),
    Explanation(
        files="ledger/verify/hashing.py",
        lines=r"^_SAMPLE_PLACES",
        became=r"^_SAMPLE_PLACES.*\(6, 506\)\]$",
        reason="which lengths are tried before OpenSSL is relied on: others near the ends of blocks would do as well",
        is_equivalent=False,
    ),
    Explanation(
        files="ledger/(format/rules|verify/starting).py",
        operators="_(Lt_NotEq|Eq_LtE)$",
        lines=r"^return 0 < self.size == self.witnessed_size$|^if old.size == 0:$",
        reason="no size is negative",
    ),
    Explanation(
        files="ledger/verify/kernel.py",
        lines=r"^return -1$",
        became=r"^return (- 2|~1)$",
        reason="whoever is given a place asks whether it is negative, or as large as it must be",
    ),
    Explanation(
        files="ledger/verify/kernel.py",
        operators="_Lt_LtE$",
        lines=r"^if at < 0( or level == 0)?:$",
        became=r"^if at <= 0( or level == 0)?:$",
        reason="where a value ends, or a name, is behind where it begins: never at 0",
    ),
    Explanation(
        files="ledger/verify/kernel.py",
        operators="_Eq_LtE$",
        lines=r"^is_list = ",
        reason="of the marks that stand there, -2 is the lowest",
    ),
    Explanation(
        files="ledger/verify/kernel.py",
        operators="_Eq_LtE$",
        lines=r"^if byte == _FALSE\[0\]:$",
        reason="`null` begins behind `false`, and what begins neither is refused as either",
    ),
    Explanation(
        files="ledger/verify/kernel.py",
        operators="_GtE_Eq$",
        lines=r"position >= of",
        became=r"position == of",
        reason="a position beyond the group's end is neither 0 nor where the group goes on",
    ),
    Explanation(
        files="ledger/verify/kernel.py",
        operators="NumberReplacer",
        lines=r"^LEVELS_MAX: Final = 32$",
        reason="how fast, not what: the rules themselves judge what is nested deeper",
        is_equivalent=False,
    ),
    Explanation(
        files="ledger/verify/kernel.py",
        lines=r"^return np\.int64\(-1\), np\.int64\(-1\)$",
        became=r"^return np\.int64\(-1\), ",
        reason="the first number says that there is none; nobody reads the other then",
    ),
    Explanation(files="ledger/verify/fast.py", lines=r"^_FAMILY_BYTES", became=r"= [2-9] \+ ", reason="room to spare"),
    Explanation(files="ledger/verify/fast.py", lines=r"= np\.zeros\(16 \* \(TILE_WIDTH \+ 1\)", reason="room to spare"),
    Explanation(lines=r"^_STATE_BYTES_MAX", reason="a bound far above what is ever written", is_equivalent=False),
    Explanation(
        lines=r"ENTRY_SIZE_BYTES_MAX|PROOF_SIZE_BYTES_MAX|HASHES_MAX \+ 3",
        reason="a limit checked once more behind a parser that holds it too",
    ),
)
"""In order; the first that fits counts."""


def explain(*, path: str, operator: str, line: str, after: str) -> Explanation | None:
    """Return why such a mutant survives, or None if nobody has said so."""
    fitting = (one for one in EXPLANATIONS if one.fits(path=path, operator=operator, line=line, after=after))
    return next(fitting, None)
