/* What the parts of the launcher know of each other.
 *
 * The program file is: this launcher (a static ELF), then zstd(tar of the PyInstaller folder), then the footer.
 * The launcher unpacks the payload once into a folder named by the payload's hash and then executes the program in
 * it. Three rules hold everywhere: nothing unverified is unpacked, nothing half-made is ever executed, and nothing
 * is trusted that another user could have changed.
 */
#ifndef FERMIX_LAUNCHER_H
#define FERMIX_LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    HASH_BYTES = 32,
    HASH_TEXT_SIZE = 2 * HASH_BYTES + 1,
    KEY_CHARS = 24, /* of the hash in hex: enough to tell builds apart, short enough to read */
    COPY_BYTES = 64 * 1024,
    CANNOT_RUN = 126, /* what a shell says of a command that was found and could not be run */
};

/* report.c */
__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);
__attribute__((format(printf, 1, 2))) int because(const char *format, ...); /* keeps a reason, returns -1 */
const char *reason(void);

/* sha256.c */
struct sha256 {
    uint32_t state[8];
    uint64_t length_bytes;
    unsigned char block[64];
};
void sha256_begin(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *data, size_t size);
void sha256_end(struct sha256 *hash, unsigned char digest[HASH_BYTES]);

/* payload.c */
struct payload {
    int file;
    uint64_t offset, size; /* of the compressed bytes in the program file */
    uint64_t raw_size;     /* of the tar */
    uint64_t entries;
    char hash[HASH_TEXT_SIZE];
    char key[KEY_CHARS + 1];
};
struct stream;
void payload_open(struct payload *payload);
void payload_verify(const struct payload *payload);
struct stream *stream_open(const struct payload *payload);
void stream_read(struct stream *stream, void *data, size_t size);
void stream_close(struct stream *stream);

/* unpack.c */
int unpack(const struct payload *payload, int folder, FILE *manifest);

/* tree.c */
bool tree_is_whole(int runtime, const struct payload *payload);
int tree_create(int runtime, const char *name, const struct payload *payload);
void tree_remove(int parent, const char *name);

/* cache.c */
struct place {
    char path[4096]; /* of the runtime folder, which holds one folder for each build */
    size_t base;     /* how much of the path was there before us: a home or a cache folder */
    int runtime;     /* open while this place is used, else -1 */
};
bool cache_find(struct place *place, const struct payload *payload);
int cache_install(struct place *place, const struct payload *payload);

#endif
