/* The view of a command: a new root that holds the named paths and nothing else. Called by confine.c.
 *
 * Places are held by descriptor and no link is followed on the way: another command may change a folder of the new
 * root while we are in it, and must neither lead us out nor have a cover put anywhere else.
 */

#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const ROOT = "/tmp"; /* where the new root is mounted until it becomes "/", seen by nobody else */
static int new_root = -1, covers[MOST + 1], cover_count;
static const char *links[MOST][2];
static int link_count;

const char *const devices[DEVICES] = {"/dev/null", "/dev/zero", "/dev/urandom"};

void add_link(const char *path, const char *target)
{
    errno = E2BIG;
    need(link_count < MOST, "usage", path);
    links[link_count][0] = path;
    links[link_count++][1] = target;
}

static void write_text(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    need(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text), "identity", path);
    close(file);
}

void keep_identity(uid_t uid, gid_t gid)
{
    char line[64];
    write_text("/proc/self/setgroups", "deny");
    snprintf(line, sizeof line, "%u %u 1", uid, uid);
    write_text("/proc/self/uid_map", line);
    snprintf(line, sizeof line, "%u %u 1", gid, gid);
    write_text("/proc/self/gid_map", line);
}

static int find_place(const char *path)
{
    return open_place(new_root, path + 1, RESOLVE_BENEATH);
}

static int step_to(int above, const char *name, int is_folder)
{
    int place = open_place(above, name, RESOLVE_BENEATH);
    if (place < 0 && errno == ENOENT) {
        int made = is_folder ? mkdirat(above, name, 0755) : mknodat(above, name, S_IFREG | 0644, 0);
        need(made == 0 || errno == EEXIST, "view", name);
        place = open_place(above, name, RESOLVE_BENEATH);
    }
    need(place >= 0, "view", name);
    if (above != new_root)
        close(above);
    return place;
}

/* Make what is missing of an absolute path in the new root, and hold it. */
static int make_place(const char *path, int is_folder)
{
    char name[NAME_MAX + 1];
    int place = new_root;
    while (*path == '/') {
        size_t length = strcspn(++path, "/");
        errno = ENAMETOOLONG;
        need((size_t)snprintf(name, sizeof name, "%.*s", (int)length, path) < sizeof name, "view", path);
        path += length;
        place = step_to(place, name, is_folder || *path == '/');
    }
    return place;
}

static void change_mount(int mounted, const char *path, uint64_t set, unsigned depth)
{
    struct mount_attr attributes = {.attr_set = set};
    long changed = syscall(SYS_mount_setattr, mounted, "", AT_EMPTY_PATH | depth, &attributes, sizeof attributes);
    need(changed == 0, "view", path);
}

/* Put a copy of what is held at a place of the new root. It has its flags before anybody could see it. */
static void show_at(int place, int held, const char *path, uint64_t flags)
{
    unsigned whole = AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC;
    int copy = (int)syscall(SYS_open_tree, held, "", whole);
    need(copy >= 0, "view", path);
    change_mount(copy, path, flags, AT_RECURSIVE);
    int how = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    need(syscall(SYS_move_mount, copy, "", place, "", how) == 0, "view", path);
    close(copy);
    close(place);
}

static void show(int held, const char *path, uint64_t flags)
{
    struct stat state;
    need(fstat(held, &state) == 0, "view", path);
    show_at(make_place(path, S_ISDIR(state.st_mode)), held, path, flags);
    close(held);
}

static void mount_at(int place, const char *path, const char *type, unsigned long flags, const char *options)
{
    char at[48];
    snprintf(at, sizeof at, "/proc/self/fd/%d", place);
    need(mount(type, at, type, MS_NOSUID | flags, options) == 0, "view", path);
    close(place);
}

/* Close what an earlier path has shown. A folder is closed by an empty one that can only be passed through, so that
 * a later path below it can be shown again. */
static void hide(int blank, const char *path)
{
    struct stat state;
    int place = find_place(path);
    if (place < 0 && (errno == ENOENT || errno == ENOTDIR))
        return; /* nothing of that name is in the view */
    need(place >= 0 && fstat(place, &state) == 0, "hide", path);
    if (S_ISDIR(state.st_mode)) {
        mount_at(place, path, "tmpfs", MS_NODEV | MS_NOEXEC, "mode=0111,size=64k");
        need((covers[cover_count++] = find_place(path)) >= 0, "hide", path);
    } else
        show_at(place, blank, path, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC);
}

/* A device can be written to on a read-only mount; its mode cannot be changed there, which root could elsewhere. */
static void show_devices(const int held[])
{
    for (size_t i = 0; i < DEVICES; i++)
        if (held[i] >= 0)
            show(held[i], devices[i], MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    mount_at(make_place("/dev/pts", 1), "/dev/pts", "devpts", MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620");
    add_link("/dev/random", "urandom");
    add_link("/dev/shm", "/tmp");
    add_link("/dev/ptmx", "pts/ptmx");
    add_link("/dev/fd", "/proc/self/fd");
    add_link("/dev/stdin", "/proc/self/fd/0");
    add_link("/dev/stdout", "/proc/self/fd/1");
    add_link("/dev/stderr", "/proc/self/fd/2");
}

/* In the order they were given: each may lie below the one before it. */
static void show_paths(const int held[])
{
    int blank = make_place("/.blank", 0);
    need(chmod("/tmp/.blank", 0) == 0, "view", "blank");
    for (int i = 0; i < path_count; i++) {
        uint64_t flags = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
        if (paths[i].kind == HIDE)
            hide(blank, paths[i].path);
        else
            show(held[i], paths[i].path, paths[i].kind == WRITE ? flags : flags | MOUNT_ATTR_RDONLY);
    }
    need(unlinkat(new_root, ".blank", 0) == 0, "view", "blank");
    close(blank);
}

/* What root may write in it would change the whole machine. */
static void show_processes(void)
{
    mount_at(make_place("/proc", 1), "/proc", "proc", MS_NODEV | MS_NOEXEC, NULL);
    need((covers[cover_count++] = find_place("/proc")) >= 0, "view", "/proc");
}

/* Nothing more is to be made in the new root and in the folders that close others. */
static void seal_view(void)
{
    for (int i = 0; i < cover_count; i++) {
        change_mount(covers[i], "cover", MOUNT_ATTR_RDONLY, 0);
        close(covers[i]);
    }
    change_mount(new_root, "/", MOUNT_ATTR_RDONLY, 0);
    close(new_root);
}

static void make_links(void)
{
    for (int i = 0; i < link_count; i++)
        need(symlinkat(links[i][1], new_root, links[i][0] + 1) == 0 || errno == EEXIST, "view", links[i][0]);
}

/* The old root's folders are held while it is still in sight: the new root hides what lies below its place. */
void make_view(void)
{
    int held_tmp = tmp == NULL ? -1 : hold(tmp), held[MOST], held_devices[DEVICES];
    for (int i = 0; i < path_count; i++)
        held[i] = paths[i].kind == HIDE ? -1 : hold(paths[i].path);
    for (size_t i = 0; i < DEVICES; i++)
        held_devices[i] = open(devices[i], O_PATH | O_CLOEXEC);
    need(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "view", "/");
    need(mount("root", ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") == 0, "view", ROOT);
    need((new_root = hold(ROOT)) >= 0, "view", ROOT);
    if (tmp != NULL)
        show(held_tmp, "/tmp", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    show_paths(held);
    show_devices(held_devices);
    show_processes();
    make_links();
    need(fchdir(new_root) == 0 && syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0, "view", ROOT);
    need(chdir("/") == 0, "view", "/");
    seal_view();
}
