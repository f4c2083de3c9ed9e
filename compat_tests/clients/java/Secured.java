// The Java client over TLS and SASL: the program of ../access.py. Java runs this file from its source.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensions;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.serialization.*;

public class Secured {
    static final long MS_MAX = 60_000;
    static final long PACE_MS = 20;
    static final String MODULES = "org.apache.kafka.common.security.";
    static JsonNode access;

    public static void main(String[] words) throws Exception {
        ObjectMapper json = new ObjectMapper();
        access = json.readTree(new File(words[0]));
        Map<String, Object> done = switch (text("mode")) {
            case "once" -> once();
            case "refused" -> refused();
            case "steady" -> steady();
            default -> throw new IllegalArgumentException(text("mode"));
        };
        System.out.println(json.writeValueAsString(done));
        System.exit(0);
    }

    static String text(String name) {
        return access.get(name).asText();
    }

    static Map<String, Object> settings(Object... more) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", text("bootstrap"));
        settings.put("security.protocol", text("protocol"));
        settings.put("max.block.ms", 15_000);
        settings.put("delivery.timeout.ms", 30_000);
        settings.put("request.timeout.ms", 20_000);
        if (!text("authority").isEmpty()) {
            settings.put("ssl.truststore.type", "PEM");
            settings.put("ssl.truststore.location", text("authority"));
        }
        if (!text("certificate").isEmpty()) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.certificate.chain", Files.readString(Path.of(text("certificate"))));
            settings.put("ssl.keystore.key", Files.readString(Path.of(text("key"))));
        }
        String mechanism = text("mechanism");
        if (!mechanism.isEmpty()) {
            settings.put("sasl.mechanism", mechanism);
            settings.put("sasl.jaas.config", jaas(mechanism));
        }
        if (mechanism.equals("OAUTHBEARER")) settings.put("sasl.login.callback.handler.class", Tokens.class);
        for (int at = 0; at < more.length; at += 2) settings.put((String) more[at], more[at + 1]);
        return settings;
    }

    static String jaas(String mechanism) {
        if (mechanism.equals("OAUTHBEARER")) return MODULES + "oauthbearer.OAuthBearerLoginModule required;";
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        String user = "username=\"%s\" password=\"%s\"".formatted(text("username"), text("password"));
        return MODULES + module + " required " + user + ";";
    }

    static KafkaProducer<String, String> producer() throws Exception {
        return new KafkaProducer<>(settings(), new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> reader() throws Exception {
        Map<String, Object> settings = settings("group.id", text("group"), "auto.offset.reset", "earliest");
        KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(text("topic")));
        return consumer;
    }

    static Map<String, Object> once() throws Exception {
        int records = access.get("records").asInt();
        try (KafkaProducer<String, String> producer = producer()) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < records; number++) {
                sent.add(producer.send(new ProducerRecord<>(text("topic"), String.valueOf(number))));
            }
            for (Future<RecordMetadata> each : sent) each.get(MS_MAX, TimeUnit.MILLISECONDS);
        }
        Set<String> read = new HashSet<>();
        try (KafkaConsumer<String, String> consumer = reader()) {
            long until = System.currentTimeMillis() + MS_MAX;
            while (read.size() < records && System.currentTimeMillis() < until) {
                consumer.poll(Duration.ofMillis(200)).forEach(each -> read.add(each.value()));
            }
            consumer.commitSync();
        }
        return Map.of("read", read.size());
    }

    static Map<String, Object> refused() throws Exception {
        try (KafkaProducer<String, String> producer = producer()) {
            producer.send(new ProducerRecord<>(text("topic"), "x")).get(MS_MAX, TimeUnit.MILLISECONDS);
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof AuthenticationException) {
                return Map.of("refused", failed.getCause().toString());
            }
            throw failed;
        }
        throw new IllegalStateException("written");
    }

    static Map<String, Object> steady() throws Exception {
        List<String> errors = new ArrayList<>();
        AtomicInteger written = new AtomicInteger(), read = new AtomicInteger();
        AtomicBoolean hasEnded = new AtomicBoolean();
        Thread reading = new Thread(() -> {
            try (KafkaConsumer<String, String> consumer = reader()) {
                long until = Long.MAX_VALUE;
                while (System.currentTimeMillis() < until && !(hasEnded.get() && read.get() >= written.get())) {
                    read.addAndGet(consumer.poll(Duration.ofMillis(200)).count());
                    if (hasEnded.get() && until == Long.MAX_VALUE) until = System.currentTimeMillis() + MS_MAX;
                }
            } catch (Exception failed) {
                synchronized (errors) {
                    errors.add(failed.toString());
                }
            }
        });
        reading.start();
        long until = System.currentTimeMillis() + (long) (access.get("seconds").asDouble() * 1000);
        try (KafkaProducer<String, String> producer = producer()) {
            while (System.currentTimeMillis() < until) {
                long next = System.currentTimeMillis() + PACE_MS;
                try {
                    producer.send(new ProducerRecord<>(text("topic"), String.valueOf(written.get()))).get();
                } catch (ExecutionException failed) {
                    synchronized (errors) {
                        errors.add(failed.getCause().toString());
                    }
                }
                written.incrementAndGet();
                Thread.sleep(Math.max(0, next - System.currentTimeMillis()));
            }
        }
        hasEnded.set(true);
        reading.join();
        return Map.of("written", written.get(), "read", read.get(), "errors", errors);
    }

    /** Gives the token of the settings, whatever is in it. */
    public static class Tokens implements AuthenticateCallbackHandler {
        @Override
        public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {}

        @Override
        public void close() {}

        @Override
        public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
            for (Callback callback : callbacks) {
                if (callback instanceof OAuthBearerTokenCallback asked) {
                    asked.token(new Token(System.currentTimeMillis()));
                } else if (callback instanceof SaslExtensionsCallback asked) {
                    asked.extensions(SaslExtensions.empty());
                } else {
                    throw new UnsupportedCallbackException(callback);
                }
            }
        }
    }

    record Token(Long startTimeMs) implements OAuthBearerToken {
        @Override
        public String value() {
            return text("token");
        }

        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return startTimeMs + 3_600_000;
        }

        @Override
        public String principalName() {
            return text("username");
        }
    }
}
