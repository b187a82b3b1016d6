/* Start the program: find its unpacked build or unpack it, then become it.
 *
 * Folders are tried in order: $XDG_CACHE_HOME, $HOME/.cache, /var/tmp; never /tmp, which is emptied under a running
 * daemon. With FERMIX_VERIFY_ONLY set, only find or unpack: a running daemon asks this now and then, because what it
 * has not imported yet must still be there. The program learns this file's path from FERMIX_EXE.
 */
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLACES = 3 };
static const char PROGRAM[] = "fermix"; /* in the payload */

static void name_place(struct place *place, const char *base, const char *rest)
{
    place->runtime = -1;
    place->path[0] = '\0';
    if (base == NULL || base[0] != '/')
        return; /* a relative cache folder is to be ignored (XDG base directories) */
    place->base = strlen(base);
    while (place->base > 0 && base[place->base - 1] == '/')
        place->base--;
    if (place->base + strlen(rest) >= sizeof place->path)
        return;
    memcpy(place->path, base, place->base);
    strcpy(place->path + place->base, rest);
}

static void name_places(struct place places[PLACES])
{
    char shared[64];
    snprintf(shared, sizeof shared, "/fermix-%u/runtime", (unsigned)geteuid());
    name_place(&places[0], getenv("XDG_CACHE_HOME"), "/fermix/runtime");
    name_place(&places[1], getenv("HOME"), "/.cache/fermix/runtime");
    name_place(&places[2], "/var/tmp", shared);
}

static const struct place *find(struct place places[PLACES], const struct payload *payload)
{
    for (int i = 0; i < PLACES; i++) {
        if (places[i].path[0] != '\0' && cache_find(&places[i], payload))
            return &places[i];
    }
    return NULL;
}

static const struct place *install(struct place places[PLACES], const struct payload *payload)
{
    for (int i = 0; i < PLACES; i++) {
        if (places[i].path[0] == '\0')
            continue;
        if (cache_install(&places[i], payload) == 0)
            return &places[i];
        fprintf(stderr, "fermix: cannot unpack to %s: %s\n", places[i].path, reason());
    }
    die("found no folder to unpack itself to: set XDG_CACHE_HOME to a folder of your own, on a disk with %llu MB free"
        " that allows programs to run",
        (unsigned long long)(payload->raw_size / 1000000 + 1));
}

/* Become the program; returns when it could not be executed. */
static void become(const struct place *place, const struct payload *payload, char **argv)
{
    char program[sizeof place->path + KEY_CHARS + sizeof PROGRAM + 2];
    snprintf(program, sizeof program, "%s/%s/%s", place->path, payload->key, PROGRAM);
    execv(program, argv);
}

static void export_own_path(void)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0)
        die("cannot read its own path: %s", strerror(errno));
    path[length] = '\0';
    if (setenv("FERMIX_EXE", path, 1) != 0)
        die("not enough memory to start");
}

/* Files opened later must not land on a closed stdin, stdout or stderr: one is inherited, and would be written to. */
static void fill_standard_files(void)
{
    int file;
    do
        file = open("/dev/null", O_RDWR);
    while (file >= 0 && file <= STDERR_FILENO);
    if (file >= 0)
        close(file);
}

int main(int argc, char **argv)
{
    static struct place places[PLACES];
    static struct payload payload;
    (void)argc;
    fill_standard_files();
    payload_open(&payload);
    export_own_path();
    mode_t mask = umask(077);
    for (int attempt = 0; attempt < 2; attempt++) {
        name_places(places);
        const struct place *place = find(places, &payload);
        if (place == NULL)
            place = install(places, &payload);
        if (getenv("FERMIX_VERIFY_ONLY") != NULL)
            return 0;
        umask(mask);
        become(place, &payload, argv);
        if (errno != ENOENT)
            break; /* else another start moved a damaged build aside just now, and the new one is in place */
    }
    die("cannot start the unpacked program: %s", strerror(errno));
}
