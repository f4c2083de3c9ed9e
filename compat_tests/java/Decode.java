import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.zip.CRC32;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.utils.BufferSupplier;

/**
 * Decompresses frames from standard input with Kafka's own readers: each is the codec's id (1 byte), a length (int32)
 * and the frame. One line of standard output for each: "SIZE CRC", or "refused".
 */
public class Decode {
    public static void main(String[] arguments) throws IOException {
        DataInputStream frames = new DataInputStream(System.in);
        PrintStream lines = new PrintStream(System.out, false);
        for (int codec = frames.read(); codec >= 0; codec = frames.read()) {
            byte[] frame = new byte[frames.readInt()];
            frames.readFully(frame);
            lines.println(decode(codec, frame));
        }
        lines.flush();
    }

    private static String decode(int codec, byte[] frame) {
        byte[] chunk = new byte[4096];
        CRC32 crc = new CRC32();
        long size = 0;
        Compression compression = Compression.of(CompressionType.forId(codec)).build();
        try (InputStream content =
                compression.wrapForInput(ByteBuffer.wrap(frame), (byte) 2, BufferSupplier.NO_CACHING)) {
            for (int count = content.read(chunk); count > 0; count = content.read(chunk)) {
                crc.update(chunk, 0, count);
                size += count;
            }
            return size + " " + crc.getValue();
        } catch (Throwable refused) {
            return "refused";
        }
    }
}
