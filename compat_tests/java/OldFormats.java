// Message sets of formats 0 and 1, as Kafka's own classes write them; a line for each: its name, and its bytes in base64.
// compat_tests/record_old_formats.py runs it.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;

public class OldFormats {
    static final long TIME = 1_700_000_000_000L;

    public static void main(String[] arguments) {
        for (byte magic : new byte[] {0, 1}) {
            for (CompressionType codec : List.of(
                    CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4)) {
                String name = "java magic " + magic + " " + codec.name;
                SimpleRecord[] several = {
                    record(TIME, "key", "value"), record(TIME + 7, null, "no key"), record(TIME + 3, "no value", null),
                    record(TIME + 3, null, null), record(TIME + 5, "", "")};
                print(name, write(magic, codec, TimestampType.CREATE_TIME, 0, several));
                print(name + ", one", write(magic, codec, TimestampType.CREATE_TIME, 0, record(TIME, "k", "v")));
                print(name + ", from offset 10", write(magic, codec, TimestampType.CREATE_TIME, 10, several));
                print(name + ", large", write(magic, codec, TimestampType.CREATE_TIME, 0,
                    record(TIME, "k", "large ".repeat(400)), record(TIME - 1, "k", "small")));
                print(name + ", no time", write(magic, codec, TimestampType.CREATE_TIME, 0, record(-1, "k", "v")));
                if (magic == 1)
                    print(name + ", time of the append",
                        write(magic, codec, TimestampType.LOG_APPEND_TIME, 0, several));
                ByteBuffer one = write(magic, codec, TimestampType.CREATE_TIME, 0, several);
                ByteBuffer two = ByteBuffer.allocate(2 * one.remaining());
                two.put(one.duplicate()).put(one.duplicate()).flip();
                print(name + ", twice", two);
            }
        }
    }

    static SimpleRecord record(long time, String key, String value) {
        return new SimpleRecord(time, bytes(key), bytes(value));
    }

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static ByteBuffer write(byte magic, CompressionType codec, TimestampType type, long offset, SimpleRecord... records) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1 << 20), magic, Compression.of(codec).build(), type, offset, TIME + 100);
        for (SimpleRecord record : records)
            builder.append(record);
        return builder.build().buffer();
    }

    static void print(String name, ByteBuffer content) {
        byte[] data = new byte[content.remaining()];
        content.duplicate().get(data);
        System.out.println(name + "\t" + Base64.getEncoder().encodeToString(data));
    }
}
