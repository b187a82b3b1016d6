/* The tar in the payload, written below one fresh folder that is ours.
 *
 * Names come from a verified payload and are checked all the same: no absolute name, no `..`, no way through a link,
 * no file written twice. Returns -1 with a reason when the disk says no; ends the program when the tar itself is bad.
 */
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TAR_BLOCK = 512 };

/* The ustar header (POSIX.1-1988). */
struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], kind, target[100];
    char magic[6], version[2], owner[32], group[32], major[8], minor[8], prefix[155], unused[12];
};
_Static_assert(sizeof(struct header) == TAR_BLOCK, "a tar header is one block");

struct entry {
    char kind; /* '0' file, '2' link, '5' folder */
    char path[256 + 1];
    char target[100 + 1];
    mode_t mode;
    uint64_t size;
};

static uint64_t octal(const char *text, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size && text[i] >= '0' && text[i] <= '7'; i++)
        value = value << 3 | (uint64_t)(text[i] - '0');
    return value;
}

static void decode(const struct header *header, struct entry *entry)
{
    const char *slash = header->prefix[0] != '\0' ? "/" : "";
    snprintf(entry->path, sizeof entry->path, "%.155s%s%.100s", header->prefix, slash, header->name);
    snprintf(entry->target, sizeof entry->target, "%.100s", header->target);
    size_t length = strlen(entry->path);
    if (length > 0 && entry->path[length - 1] == '/')
        entry->path[length - 1] = '\0';
    entry->kind = header->kind;
    entry->mode = (mode_t)octal(header->mode, sizeof header->mode) & 0700;
    entry->size = entry->kind == '0' ? octal(header->size, sizeof header->size) : 0;
}

/* How deep below the root a relative path ends, or -1 when some part of it leaves the root. */
static int depth(int start, const char *path)
{
    while (start >= 0 && *path != '\0') {
        size_t length = strcspn(path, "/");
        if (length == 2 && strncmp(path, "..", 2) == 0)
            start--;
        else
            start++;
        path += length + (path[length] == '/');
    }
    return start;
}

static bool is_plain(const char *path)
{
    if (*path == '\0' || strchr(path, '\n') != NULL)
        return false;
    for (;;) {
        size_t length = strcspn(path, "/");
        if (length == 0 || strncmp(path, ".", length) == 0 || strncmp(path, "..", length) == 0)
            return false;
        if (path[length] == '\0')
            return true;
        path += length + 1;
    }
}

static bool is_safe(const struct entry *entry)
{
    if (!is_plain(entry->path))
        return false;
    if (entry->kind != '2')
        return entry->kind == '0' || entry->kind == '5';
    return entry->target[0] != '\0' && entry->target[0] != '/' && depth(depth(0, entry->path) - 1, entry->target) > 0;
}

/* Open the folder that holds `path`, step by step and through no link; `*last` becomes the name in it. */
static int open_parent(int folder, char *path, const char **last)
{
    int here = fcntl(folder, F_DUPFD_CLOEXEC, 3);
    for (char *slash; here >= 0 && (slash = strchr(path, '/')) != NULL; path = slash + 1) {
        *slash = '\0';
        int next = openat(here, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        close(here);
        here = next;
    }
    *last = path;
    return here;
}

static int write_all(int file, const unsigned char *data, size_t size)
{
    while (size > 0) {
        ssize_t wrote = write(file, data, size);
        if (wrote < 0 && errno != EINTR)
            return -1;
        if (wrote > 0) {
            data += wrote;
            size -= (size_t)wrote;
        }
    }
    return 0;
}

static int write_file(int parent, const char *name, const struct entry *entry, struct stream *stream)
{
    static unsigned char buffer[COPY_BYTES];
    int file = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, entry->mode);
    int result = file < 0 ? -1 : 0;
    for (uint64_t left = entry->size; result == 0 && left > 0;) {
        size_t step = left < sizeof buffer ? (size_t)left : sizeof buffer;
        stream_read(stream, buffer, step);
        result = write_all(file, buffer, step);
        left -= step;
    }
    if (file >= 0 && close(file) != 0) /* a quota may speak only now */
        result = -1;
    return result;
}

static int write_entry(int folder, const struct entry *entry, struct stream *stream)
{
    char path[sizeof entry->path];
    const char *name;
    memcpy(path, entry->path, sizeof path);
    int parent = open_parent(folder, path, &name);
    int result = -1;
    if (parent >= 0 && entry->kind == '5')
        result = mkdirat(parent, name, 0700);
    else if (parent >= 0 && entry->kind == '2')
        result = symlinkat(entry->target, parent, name);
    else if (parent >= 0)
        result = write_file(parent, name, entry, stream);
    int error = errno;
    if (parent >= 0)
        close(parent);
    return result == 0 ? 0 : because("%s", strerror(error));
}

static void skip_padding(struct stream *stream, uint64_t size)
{
    unsigned char padding[TAR_BLOCK];
    if (size % TAR_BLOCK != 0)
        stream_read(stream, padding, (size_t)(TAR_BLOCK - size % TAR_BLOCK));
}

static void note(FILE *manifest, const struct entry *entry)
{
    if (entry->kind == '0')
        fprintf(manifest, "f %llu %s\n", (unsigned long long)entry->size, entry->path);
    if (entry->kind == '2')
        fprintf(manifest, "l %zu %s\n", strlen(entry->target), entry->path);
}

int unpack(const struct payload *payload, int folder, FILE *manifest)
{
    struct header header;
    struct entry entry;
    struct stream *stream = stream_open(payload);
    int result = 0;
    uint64_t raw_bytes = 0;
    for (uint64_t i = 0; result == 0 && i < payload->entries; i++) {
        stream_read(stream, &header, sizeof header);
        decode(&header, &entry);
        raw_bytes += sizeof header + (entry.size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
        if (!is_safe(&entry) || raw_bytes > payload->raw_size)
            die("this program file was built wrongly (bad entry %s)", entry.path);
        result = write_entry(folder, &entry, stream);
        if (result == 0)
            skip_padding(stream, entry.size);
        note(manifest, &entry);
    }
    if (result == 0 && raw_bytes != payload->raw_size)
        die("this program file was built wrongly (%llu of %llu bytes)", (unsigned long long)raw_bytes,
            (unsigned long long)payload->raw_size);
    stream_close(stream);
    return result;
}
