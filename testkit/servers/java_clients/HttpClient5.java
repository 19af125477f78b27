import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.util.Arrays;
import org.apache.hc.client5.http.config.RequestConfig;
import org.apache.hc.client5.http.entity.GzipCompressingEntity;
import org.apache.hc.client5.http.impl.classic.CloseableHttpClient;
import org.apache.hc.client5.http.impl.classic.HttpClients;
import org.apache.hc.core5.http.ContentType;
import org.apache.hc.core5.http.HttpEntity;
import org.apache.hc.core5.http.io.entity.ByteArrayEntity;
import org.apache.hc.core5.http.io.entity.EntityUtils;
import org.apache.hc.core5.http.io.entity.InputStreamEntity;
import org.apache.hc.core5.http.io.support.ClassicRequestBuilder;

/**
 * Sends what it is told to, with the client that Iceberg's Java library uses: one request a line of standard input,
 * `URL Authorization size framing`, and prints the status that came back, or what was thrown instead. Nothing is retried.
 */
public final class HttpClient5 {
  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    try (CloseableHttpClient client = HttpClients.custom().disableAutomaticRetries().build()) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        String[] words = line.split(" ");
        System.out.println(send(client, words[0], words[1], Integer.parseInt(words[2]), words[3]));
      }
    }
  }

  private static String send(CloseableHttpClient client, String url, String key, int size, String framing) {
    byte[] body = new byte[size];
    Arrays.fill(body, (byte) ' ');
    boolean asks = framing.equals("continue");
    ClassicRequestBuilder request =
        ClassicRequestBuilder.post(url).addHeader("Authorization", "Bearer " + key).setEntity(entity(body, framing));
    if (framing.equals("twice")) {
      request.addHeader("Authorization", "Bearer " + key);
    }
    RequestConfig config = RequestConfig.custom().setExpectContinueEnabled(asks).build();
    try {
      org.apache.hc.client5.http.protocol.HttpClientContext context =
          org.apache.hc.client5.http.protocol.HttpClientContext.create();
      context.setRequestConfig(config);
      return client.execute(request.build(), context, answer -> {
        EntityUtils.consume(answer.getEntity());
        return Integer.toString(answer.getCode());
      });
    } catch (Exception error) {
      return error.toString();
    }
  }

  private static HttpEntity entity(byte[] body, String framing) {
    switch (framing) {
      case "chunks":
        return new InputStreamEntity(new ByteArrayInputStream(body), -1, ContentType.APPLICATION_JSON);
      case "gzip":
        return new GzipCompressingEntity(new ByteArrayEntity(body, ContentType.APPLICATION_JSON));
      default:
        return new ByteArrayEntity(body, ContentType.APPLICATION_JSON);
    }
  }
}
