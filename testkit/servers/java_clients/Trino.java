// SPDX-License-Identifier: Apache-2.0
// Starts Trino's server, whose own program is not published as a jar.
// Arguments: its version. The property `config` names its configuration.

import io.trino.server.Server;

public final class Trino {
    public static void main(String[] arguments) {
        new Server().start(arguments[0]);
    }
}
