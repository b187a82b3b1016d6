/* One unpacked build: a folder named by the payload's key, whole or not there.
 *
 * `.complete` in it holds the payload's hash and then every file with its size. It is written last, after all else
 * reached the disk, so a folder without it was never finished. Whether the folder is still whole is asked at every
 * start: cleaners of cache and temporary folders delete single files, and Python would notice only at a late import.
 */
#include "launcher.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char COMPLETE[] = ".complete";
enum { MANIFEST_MAX_BYTES = 4 * 1024 * 1024 };

static bool is_ours_alone(const struct stat *status)
{
    return status->st_uid == geteuid() && (status->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Return the text of `.complete`, to be freed, or NULL. */
static char *read_manifest(int tree)
{
    struct stat status;
    char *text = NULL;
    int file = openat(tree, COMPLETE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0)
        return NULL;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && is_ours_alone(&status) &&
        status.st_size <= MANIFEST_MAX_BYTES)
        text = malloc((size_t)status.st_size + 1);
    if (text != NULL) {
        ssize_t got = read(file, text, (size_t)status.st_size);
        text[got > 0 ? got : 0] = '\0';
    }
    close(file);
    return text;
}

/* Whether one line, such as "f 120 _internal/fermix/cli/main.pyc", is true of the folder. */
static bool is_as_noted(int tree, char *line)
{
    struct stat status;
    char *path;
    long long size = strtoll(line + 1, &path, 10);
    if (*path != ' ' || fstatat(tree, path + 1, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    mode_t kind = line[0] == 'l' ? S_IFLNK : S_IFREG;
    return (status.st_mode & S_IFMT) == kind && status.st_size == size;
}

static bool is_as_manifest_says(int tree, const char *hash, char *manifest)
{
    char *rest, *line = strtok_r(manifest, "\n", &rest);
    if (line == NULL || strcmp(line, hash) != 0)
        return false;
    while ((line = strtok_r(NULL, "\n", &rest)) != NULL) {
        if (!is_as_noted(tree, line))
            return false;
    }
    return true;
}

bool tree_is_whole(int runtime, const struct payload *payload)
{
    struct stat status;
    bool whole = false;
    int tree = openat(runtime, payload->key, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (tree < 0)
        return false;
    char *manifest = NULL;
    if (fstat(tree, &status) == 0 && is_ours_alone(&status))
        manifest = read_manifest(tree);
    if (manifest != NULL)
        whole = is_as_manifest_says(tree, payload->hash, manifest);
    free(manifest);
    close(tree);
    return whole;
}

static int write_manifest(int tree, const char *text, size_t size)
{
    int file = openat(tree, COMPLETE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return because("%s", strerror(errno));
    ssize_t wrote = write(file, text, size);
    int result = wrote == (ssize_t)size && fsync(file) == 0 ? 0 : because("%s", wrote < 0 ? strerror(errno) : "disk full");
    close(file);
    return result;
}

static int fill(int tree, const struct payload *payload)
{
    char *text = NULL;
    size_t size = 0;
    FILE *manifest = open_memstream(&text, &size);
    if (manifest == NULL)
        die("not enough memory to unpack");
    fprintf(manifest, "%s\n", payload->hash);
    int result = unpack(payload, tree, manifest);
    if (fclose(manifest) != 0)
        die("not enough memory to unpack");
    if (result == 0 && syncfs(tree) != 0)
        result = because("%s", strerror(errno));
    if (result == 0)
        result = write_manifest(tree, text, size);
    free(text);
    return result;
}

int tree_create(int runtime, const char *name, const struct payload *payload)
{
    if (mkdirat(runtime, name, 0700) != 0)
        return because("%s", strerror(errno));
    int tree = openat(runtime, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (tree < 0)
        return because("%s", strerror(errno));
    int result = fill(tree, payload);
    close(tree);
    return result;
}

static void empty(int folder)
{
    DIR *entries = fdopendir(folder);
    struct dirent *entry;
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            tree_remove(folder, entry->d_name);
    }
    if (entries != NULL)
        closedir(entries);
    else
        close(folder);
}

/* Remove a file, a link or a whole folder, as far as possible; what stays is found again at the next unpacking. */
void tree_remove(int parent, const char *name)
{
    if (unlinkat(parent, name, 0) == 0)
        return;
    int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return;
    empty(folder); /* closes it */
    unlinkat(parent, name, AT_REMOVEDIR);
}
