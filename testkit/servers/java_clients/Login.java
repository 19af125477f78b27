// SPDX-License-Identifier: Apache-2.0
// Iceberg's Java library logs in with a credential: arguments are the URL, the credential and the namespace. Prints the
// tables that it sees, and whether its session has renewed its token, first by exchange and then with the credential.

import java.util.Map;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.rest.HTTPClient;
import org.apache.iceberg.rest.RESTCatalog;
import org.apache.iceberg.rest.auth.AuthConfig;
import org.apache.iceberg.rest.auth.AuthSession;
import org.apache.iceberg.rest.auth.OAuth2Util;

public final class Login {
  public static void main(String[] arguments) throws Exception {
    String url = arguments[0];
    String oauth = url + "/v1/oauth/tokens";
    try (RESTCatalog catalog = new RESTCatalog()) {
      catalog.initialize(
          "lake",
          Map.of("uri", url, "warehouse", "lake", "credential", arguments[1], "oauth2-server-uri", oauth));
      System.out.println(catalog.listTables(Namespace.of(arguments[2])));
    }
    for (boolean exchanges : new boolean[] {true, false}) {
      AuthConfig config =
          AuthConfig.builder()
              .credential(arguments[1])
              .scope("catalog")
              .oauth2ServerUri(oauth)
              .exchangeEnabled(exchanges)
              .build();
      try (HTTPClient client =
              HTTPClient.builder(Map.of()).uri(url).withAuthSession(AuthSession.EMPTY).build();
          OAuth2Util.AuthSession parent = new OAuth2Util.AuthSession(Map.of(), config);
          OAuth2Util.AuthSession session =
              OAuth2Util.AuthSession.fromCredential(client, null, arguments[1], parent)) {
        String first = session.token();
        boolean isRenewed = session.refresh(client) != null && !session.token().equals(first);
        System.out.println(isRenewed);
      }
    }
  }
}
