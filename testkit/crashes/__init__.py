# SPDX-License-Identifier: Apache-2.0
"""
A campaign of kills: an installation whose parts are killed while clients commit, and what must hold of it afterwards.

`client` is a client process, `clients` starts them and takes down what they say, `installation` is what is killed,
`agreement` says what must hold, `campaign` kills and checks.
"""
