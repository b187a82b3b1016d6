/* The folder that holds the unpacked builds, and the locks in it.
 *
 *   KEY/            one whole build           KEY.lock   shared: this build is in use; exclusive: it may be removed
 *   .new-KEY/       being unpacked            unpack.lock   one unpacking at a time
 *   .old-KEY/       a damaged build, moved aside
 *
 * The shared lock is inherited over exec and ends with the program, whatever ends it. Builds that nobody uses are
 * removed when another one is unpacked.
 */
#include "launcher.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum {
    LOCK_TRIES = 10,          /* each lost to another start that removed the lock file just then */
    UNPACK_WAIT_STEPS = 3000, /* of 20 ms: one minute for another start to unpack */
};

static int keep_if_trusted(int folder, const char *path, bool is_base)
{
    struct stat status;
    if (fstat(folder, &status) != 0)
        because("%s: %s", path, strerror(errno));
    else if (is_base && (status.st_mode & S_ISVTX) != 0)
        return folder; /* such as /var/tmp: others cannot rename what is ours */
    else if (status.st_uid != geteuid())
        because("%s belongs to another user", path);
    else if ((status.st_mode & S_IWOTH) != 0)
        because("%s can be changed by other users", path);
    else
        return folder;
    close(folder);
    return -1;
}

static int create(int parent, const char *name, const char *path)
{
    struct stat status;
    if (fstat(parent, &status) != 0 || (status.st_uid != geteuid() && (status.st_mode & S_ISVTX) == 0))
        return because("the folder above %s belongs to another user", path); /* as root in a user's home */
    if (mkdirat(parent, name, 0700) != 0 && errno != EEXIST)
        return because("%s: %s", path, strerror(errno));
    return 0;
}

/* Open `name` in `parent`, which is closed. `path` is the whole path, for the reason. */
static int enter(int parent, const char *name, const char *path, bool may_create)
{
    const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    int folder = openat(parent, name, flags);
    if (folder < 0 && errno == ENOENT && may_create) {
        if (create(parent, name, path) == 0)
            folder = openat(parent, name, flags);
    } else if (folder < 0)
        because("%s: %s", path, strerror(errno));
    close(parent);
    return folder;
}

/* Walk to the runtime folder. From the base on, every folder must be ours and closed to others. */
static int open_folders(const struct place *place, bool may_create)
{
    char path[sizeof place->path];
    size_t start = 1, end;
    int here = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (; here >= 0 && place->path[start - 1] != '\0'; start = end + 1) {
        end = start + strcspn(place->path + start, "/");
        memcpy(path, place->path, end);
        path[end] = '\0';
        here = enter(here, end == start ? "." : path + start, path, may_create);
        if (here >= 0 && end >= place->base)
            here = keep_if_trusted(here, path, end == place->base);
    }
    return here;
}

static int open_runtime(struct place *place, bool may_create)
{
    int folder = open_folders(place, may_create);
    if (folder < 0)
        return -1;
    struct statvfs disk;
    place->runtime = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(folder);
    if (place->runtime < 0 || fstatvfs(place->runtime, &disk) != 0)
        because("%s: %s", place->path, strerror(errno));
    else if ((disk.f_flag & ST_NOEXEC) != 0)
        because("%s is on a disk mounted noexec", place->path);
    else
        return 0;
    return -1;
}

static bool is_still_named(int file, int runtime, const char *name)
{
    struct stat held, named;
    return fstat(file, &held) == 0 && fstatat(runtime, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

/* Say "this build is in use" until this process and the program it becomes have ended. */
static int hold_shared(int runtime, const struct payload *payload)
{
    char name[KEY_CHARS + sizeof ".lock"];
    snprintf(name, sizeof name, "%s.lock", payload->key);
    for (int i = 0; i < LOCK_TRIES; i++) {
        int file = openat(runtime, name, O_RDONLY | O_CREAT | O_NOFOLLOW, 0600); /* inherited over exec */
        if (file < 0 || flock(file, LOCK_SH) != 0)
            return because("%s", strerror(errno));
        if (is_still_named(file, runtime, name))
            return file;
        close(file);
    }
    return because("its lock file keeps changing");
}

static int hold_unpack_lock(int runtime)
{
    int file = openat(runtime, "unpack.lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return because("%s", strerror(errno));
    for (int i = 0; i < UNPACK_WAIT_STEPS; i++) {
        if (flock(file, LOCK_EX | LOCK_NB) == 0)
            return file;
        if (errno != EWOULDBLOCK && errno != EINTR)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
    because("%s", errno == EWOULDBLOCK ? "another start has been unpacking for a minute" : strerror(errno));
    close(file);
    return -1;
}

static bool is_key(const char *name)
{
    return strspn(name, "0123456789abcdef") == KEY_CHARS && name[KEY_CHARS] == '\0';
}

static void remove_if_unused(int runtime, const char *key)
{
    char lock[KEY_CHARS + sizeof ".lock"];
    snprintf(lock, sizeof lock, "%.*s.lock", KEY_CHARS, key);
    int file = openat(runtime, lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) {
        tree_remove(runtime, key);
        unlinkat(runtime, lock, 0);
    }
    close(file);
}

/* Under the unpack lock: drop what killed starts left, and the other builds that nobody uses. */
static void sweep(int runtime, const struct payload *payload)
{
    struct dirent *entry;
    DIR *entries = fdopendir(openat(runtime, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        const char *name = entry->d_name;
        if (strncmp(name, ".new-", 5) == 0 || strncmp(name, ".old-", 5) == 0)
            tree_remove(runtime, name);
        else if (is_key(name) && strcmp(name, payload->key) != 0)
            remove_if_unused(runtime, name);
    }
    if (entries != NULL)
        closedir(entries);
}

/* Put the new build in place; a damaged one under its name goes aside first, so no start sees a mixture. */
static int activate(int runtime, const char *fresh, const struct payload *payload)
{
    char aside[KEY_CHARS + sizeof ".old-"];
    snprintf(aside, sizeof aside, ".old-%s", payload->key);
    if (renameat(runtime, payload->key, runtime, aside) != 0 && errno != ENOENT)
        return because("%s", strerror(errno));
    if (renameat(runtime, fresh, runtime, payload->key) != 0 || fsync(runtime) != 0)
        return because("%s", strerror(errno));
    tree_remove(runtime, aside);
    return 0;
}

static int unpack_here(int runtime, const struct payload *payload)
{
    char fresh[KEY_CHARS + sizeof ".new-"];
    snprintf(fresh, sizeof fresh, ".new-%s", payload->key);
    payload_verify(payload);
    sweep(runtime, payload);
    int result = tree_create(runtime, fresh, payload);
    if (result == 0)
        result = activate(runtime, fresh, payload);
    if (result != 0)
        tree_remove(runtime, fresh);
    return result;
}

static int unpack_once(int runtime, const struct payload *payload)
{
    int lock = hold_unpack_lock(runtime);
    if (lock < 0)
        return -1;
    int result = tree_is_whole(runtime, payload) ? 0 : unpack_here(runtime, payload);
    close(lock);
    return result;
}

bool cache_find(struct place *place, const struct payload *payload)
{
    if (open_runtime(place, false) != 0 || faccessat(place->runtime, payload->key, F_OK, 0) != 0)
        return false;
    int use = hold_shared(place->runtime, payload);
    if (use >= 0 && tree_is_whole(place->runtime, payload))
        return true;
    if (use >= 0)
        close(use);
    return false;
}

int cache_install(struct place *place, const struct payload *payload)
{
    int use = open_runtime(place, true) == 0 ? hold_shared(place->runtime, payload) : -1;
    int result = use >= 0 ? unpack_once(place->runtime, payload) : -1;
    if (result != 0 && use >= 0)
        close(use);
    return result;
}
