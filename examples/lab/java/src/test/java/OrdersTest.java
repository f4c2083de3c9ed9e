// A lost acknowledgement under Java's client. `barnabas lab --topic orders` runs beside, or BARNABAS_LAB says where.
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;

class OrdersTest {
    static final String LAB = System.getenv().getOrDefault("BARNABAS_LAB", "http://127.0.0.1:9645/v1/");
    final HttpClient http = HttpClient.newHttpClient();

    JsonNode ask(String method, String path, String body) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(LAB + path)).header("content-type", "application/json");
        var answer = http.send(request.method(method, BodyPublishers.ofString(body)).build(), BodyHandlers.ofString());
        assertTrue(answer.statusCode() < 300, answer.body());
        return new ObjectMapper().readTree(answer.body());
    }

    @Test
    void anOrderIsWrittenOnce() throws Exception {
        ask("POST", "reset", "");
        String drop = "{\"drop\": \"Produce\", \"when\": \"after\", \"topic\": \"orders\", \"times\": 1}";
        String lost = ask("POST", "faults", drop).get("id").asText();
        String servers = ask("GET", "brokers", "").get("bootstrap_servers").asText();
        Map<String, Object> settings = Map.of("bootstrap.servers", servers);
        String order = "order " + UUID.randomUUID();
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("orders", order)).get();
        }
        assertEquals(1, ask("GET", "faults/" + lost + "/wait", "").get("fired").asInt());
        var values = ask("GET", "topics/orders/records", "").get("records").findValuesAsText("value");
        assertEquals(1, values.stream().filter(order::equals).count());
    }
}
