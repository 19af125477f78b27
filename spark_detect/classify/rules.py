# SPDX-License-Identifier: Apache-2.0
"""
What each kind of personal data looks like: the one definition, which the compiled kernel follows.

All of it is about bytes, and all of it is ASCII. A *word byte* is one of `0-9 A-Z a-z _`; a letter beyond ASCII is
none, which is what `\\b` means to RE2. Nothing here needs to look around or back.

**Numbers** (social security numbers, cards, phones) are found in two steps, so that a part of something longer is never
taken for the whole.

1. A *piece* is a longest run of `0-9 A-Z a-z _ ( ) . / -`. It is *numeric* if it has neither letter nor underscore. A
   *line* is a longest sequence of numeric pieces with one space between each; a `+` right before a piece begins a line.
   A line loses the full stops at its end, then the parentheses around all of it if there are no others in it.
2. A line of 9 to 32 bytes that has one of the forms below is one number. If it has none, each of its pieces, trimmed in
   the same way, is looked at alone. Digits alone may have two of the forms; all others exclude each other.

The forms, and when a number in one of them is valid:

- **us_ssn**: digits 3-2-4 joined by two dashes or two spaces. Valid: area 001 to 899 without 666, group not 00, serial
  not 0000, not one that was advertised. **Bare**: 9 digits.
- **credit_card**: 13 to 19 digits; or 4-4-4-4, 4-4-4-4-3, 4-6-5 or 4-6-4, joined by dashes alone or by spaces alone.
  Valid: leading digits and length of a network, and Luhn.
- **phone**: a `+` or none, then 8 to 15 digits in groups with a joint (space `.` `/` `-`) between each, and none of the
  forms above. One group of at most five digits may stand in parentheses, with a joint at either side or without. There
  is a `+`, a joint or a parenthesis. Valid is one of these:
    - *international*: `+` or `00`, a country code, as many digits as the numbers of that country have (E.164), those of
      North America by its plan. `(0)` behind other digits is not counted. Two groups with a `.` between are a decimal.
    - *North American*: 3-3-4 joined by two dashes, spaces or full stops, or `(3)`, a space or nothing, 3-4; perhaps
      behind a 1 and one of these joints (before a parenthesis, none will do). Neither area nor exchange begins with 0
      or 1; the area's second digit is not 9; neither ends in 11.
    - *national*: 9 to 12 digits with a single 0 in front. The first group has 2 to 5 digits and perhaps parentheses; a
      space, slash or dash follows; then one to four groups of 2 to 8, joined by spaces alone or by dashes alone. Or
      five pairs joined by full stops.
- **phone, bare**: 9 to 12 digits. Valid: a single 0 in front; or 9 digits that begin with 6 to 9; or 10 that begin so
  or are of the North American plan; or 11 that begin with 13 to 19; or a country code and as many digits as it has.
  As bare, and valid, counts also what is no valid phone but 8 to 11 digits, the first not 0, in three to five groups of
  2 to 4 joined by spaces: the national form of countries without a trunk 0.

**email**: a longest run of `0-9 A-Z a-z . _ % + ' -`, an `@`, a longest run of `0-9 A-Z a-z . -`, of what the one
before has left. Valid is a subset of RFC 5321, section 4.1.2: the local part begins with a word byte, has single dots
inside and at most 64 bytes; at most 254 bytes in all; two labels or more of at most 63 bytes, none with a dash at
either end, the last of them two letters or more (or `xn--` and more) and not the ending of a file. Quotes before and
dots or dashes behind are not part of it. What has a `/` before it, or a `:`, `/` or `@` behind it, is of a URL or a
remote.

**iban**: a country's two letters, two digits, and as many capitals and digits as the registry has for it, between two
word boundaries; or the same in groups of four with a space between each. Valid: 1 modulo 97 (ISO 13616).
"""

from __future__ import annotations

from typing import Final

VERSION: Final = 2
"""Raised with every change of a kernel that changes a count; the tables below are part of a ruleset's id anyway."""

SSN_ADVERTISED: Final = (78_05_1120, 219_09_9999, 457_55_5462)
"""Numbers that came in wallets, in a pamphlet and on billboards (Social Security Administration, misused numbers)."""

CARD_NETWORKS: Final = (
    # first and last of the leading six digits, lengths
    (300_000, 305_999, (14, 16)),  # Diners Club
    (309_500, 309_599, (14, 16)),
    (360_000, 369_999, (14,)),
    (380_000, 399_999, (14, 16)),
    (340_000, 349_999, (15,)),  # American Express
    (370_000, 379_999, (15,)),
    (352_800, 358_999, (16, 17, 18, 19)),  # JCB
    (400_000, 499_999, (13, 16, 19)),  # Visa
    (220_000, 220_499, (16, 17, 18, 19)),  # Mir
    (222_100, 272_099, (16,)),  # Mastercard
    (510_000, 559_999, (16,)),
    (501_800, 501_899, (13, 14, 15, 16, 17, 18, 19)),  # Maestro
    (502_000, 502_099, (13, 14, 15, 16, 17, 18, 19)),
    (503_800, 503_899, (13, 14, 15, 16, 17, 18, 19)),
    (589_300, 589_399, (13, 14, 15, 16, 17, 18, 19)),
    (630_400, 630_499, (13, 14, 15, 16, 17, 18, 19)),
    (675_900, 675_999, (13, 14, 15, 16, 17, 18, 19)),
    (676_100, 676_399, (13, 14, 15, 16, 17, 18, 19)),
    (506_099, 506_198, (16, 18, 19)),  # Verve
    (508_000, 508_999, (16,)),  # RuPay
    (601_100, 601_199, (16, 17, 18, 19)),  # Discover
    (644_000, 659_999, (16, 17, 18, 19)),
    (620_000, 629_999, (16, 17, 18, 19)),  # UnionPay
    (810_000, 817_199, (16, 17, 18, 19)),
    (979_200, 979_299, (16,)),  # Troy
)
"""Issuer identification numbers (ISO/IEC 7812), by network, as the networks publish them."""

IBAN_LENGTHS: Final = {
    15: "NO",
    16: "BE",
    18: "DK FI FK FO GL NL SD",
    19: "MK SI",
    20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ DJ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "BI FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
"""Length of a country's IBAN in characters (SWIFT, IBAN Registry, release 99)."""

PHONE_LENGTHS: Final = {
    # country code: fewest and most digits, the country code among them; the other countries have 8 to 15
    1: (11, 11),
    7: (11, 11),
    20: (11, 12),
    27: (11, 11),
    30: (12, 12),
    31: (11, 11),
    32: (10, 11),
    33: (11, 11),
    34: (11, 11),
    36: (10, 11),
    39: (8, 13),
    40: (11, 11),
    41: (11, 11),
    43: (8, 15),
    44: (11, 12),
    45: (10, 10),
    46: (9, 12),
    47: (10, 10),
    48: (11, 11),
    49: (9, 14),
    52: (12, 13),
    54: (12, 13),
    55: (12, 13),
    56: (11, 11),
    61: (11, 11),
    81: (11, 12),
    82: (10, 12),
    86: (11, 13),
    90: (12, 12),
    91: (12, 12),
    351: (12, 12),
    352: (8, 12),
    353: (10, 12),
    358: (9, 13),
    420: (12, 12),
    421: (12, 12),
}
PHONE_DIGITS_MIN, PHONE_DIGITS_MAX = 8, 15
PHONE_COUNTRIES: Final = (
    "1 7 20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 60 61 62 63 64 65 66 81 82 84 "
    "86 90 91 92 93 94 95 98 211 212 213 216 218 220 221 222 223 224 225 226 227 228 229 230 231 232 233 234 235 236 "
    "237 238 239 240 241 242 243 244 245 246 247 248 249 250 251 252 253 254 255 256 257 258 260 261 262 263 264 265 "
    "266 267 268 269 290 291 297 298 299 350 351 352 353 354 355 356 357 358 359 370 371 372 373 374 375 376 377 378 "
    "379 380 381 382 383 385 386 387 389 420 421 423 500 501 502 503 504 505 506 507 508 509 590 591 592 593 594 595 "
    "596 597 598 599 670 672 673 674 675 676 677 678 679 680 681 682 683 685 686 687 688 689 690 691 692 800 808 850 "
    "852 853 855 856 870 878 880 881 882 883 886 888 960 961 962 963 964 965 966 967 968 970 971 972 973 974 975 976 "
    "977 979 992 993 994 995 996 998"
)
"""Assigned country codes (ITU-T E.164, list of assigned codes). No code is the beginning of another."""

FILE_ENDINGS: Final = ("png", "jpg", "jpeg", "gif", "svg", "webp", "pdf", "css", "js", "json", "html", "txt", "ico")
"""Ends of a host's name that are none: `icon@2x.png` is a file."""
