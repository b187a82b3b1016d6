/* The payload at the end of our own file: where it is, whether it is whole, and its bytes unpacked.
 *
 * Damage cannot be mended here, so every function ends the program with a sentence when it finds some.
 */
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

static const char MAGIC[8] = "FERMIXP1";

/* Written by packaging/build.py; numbers are little-endian. */
struct footer {
    unsigned char hash[HASH_BYTES];
    unsigned char offset[8], size[8], raw_size[8], entries[8];
    char magic[8];
};

static uint64_t number(const unsigned char bytes[8])
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

static void to_hex(const unsigned char hash[HASH_BYTES], char text[HASH_TEXT_SIZE])
{
    for (int i = 0; i < HASH_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
}

static void read_at(int file, void *data, size_t size, uint64_t offset)
{
    char *next = data;
    while (size > 0) {
        ssize_t got = pread(file, next, size, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            die("cannot read its own file: %s", got < 0 ? strerror(errno) : "it became shorter");
        next += got;
        size -= (size_t)got;
        offset += (uint64_t)got;
    }
}

void payload_open(struct payload *payload)
{
    struct footer footer;
    struct stat status;
    payload->file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (payload->file < 0 || fstat(payload->file, &status) != 0)
        die("cannot open its own file through /proc: %s", strerror(errno));
    uint64_t end = (uint64_t)status.st_size - sizeof footer; /* an ELF is longer than a footer */
    read_at(payload->file, &footer, sizeof footer, end);
    payload->offset = number(footer.offset);
    payload->size = number(footer.size);
    payload->raw_size = number(footer.raw_size);
    payload->entries = number(footer.entries);
    if (memcmp(footer.magic, MAGIC, sizeof MAGIC) != 0 || payload->offset > end || payload->size != end - payload->offset)
        die("this program file is incomplete (no payload at its end); download it again");
    to_hex(footer.hash, payload->hash);
    memcpy(payload->key, payload->hash, KEY_CHARS);
    payload->key[KEY_CHARS] = '\0';
}

void payload_verify(const struct payload *payload)
{
    static unsigned char buffer[COPY_BYTES];
    unsigned char digest[HASH_BYTES];
    char text[HASH_TEXT_SIZE];
    struct sha256 hash;
    sha256_begin(&hash);
    for (uint64_t done = 0; done < payload->size;) {
        uint64_t left = payload->size - done;
        size_t step = left < sizeof buffer ? (size_t)left : sizeof buffer;
        read_at(payload->file, buffer, step, payload->offset + done);
        sha256_add(&hash, buffer, step);
        done += step;
    }
    sha256_end(&hash, digest);
    to_hex(digest, text);
    if (strcmp(text, payload->hash) != 0)
        die("this program file is damaged (payload checksum mismatch); download it again");
}

struct stream {
    ZSTD_DStream *zstd;
    int file;
    uint64_t next, end;
    ZSTD_inBuffer input;
    unsigned char buffer[COPY_BYTES];
};

struct stream *stream_open(const struct payload *payload)
{
    struct stream *stream = calloc(1, sizeof *stream);
    ZSTD_DStream *zstd = ZSTD_createDStream();
    if (stream == NULL || zstd == NULL)
        die("not enough memory to unpack");
    stream->zstd = zstd;
    stream->file = payload->file;
    stream->next = payload->offset;
    stream->end = payload->offset + payload->size;
    stream->input.src = stream->buffer;
    return stream;
}

static void refill(struct stream *stream)
{
    uint64_t left = stream->end - stream->next;
    size_t step = left < sizeof stream->buffer ? (size_t)left : sizeof stream->buffer;
    read_at(stream->file, stream->buffer, step, stream->next);
    stream->next += step;
    stream->input.size = step;
    stream->input.pos = 0;
}

void stream_read(struct stream *stream, void *data, size_t size)
{
    ZSTD_outBuffer output = {.dst = data, .size = size, .pos = 0};
    while (output.pos < output.size) {
        size_t before = output.pos;
        if (stream->input.pos == stream->input.size)
            refill(stream);
        bool spent = stream->input.size == 0;
        size_t code = ZSTD_decompressStream(stream->zstd, &output, &stream->input);
        if (ZSTD_isError(code) || (spent && output.pos == before))
            die("this program file is damaged (payload cannot be unpacked); download it again");
    }
}

void stream_close(struct stream *stream)
{
    ZSTD_freeDStream(stream->zstd);
    free(stream);
}
