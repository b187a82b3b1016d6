/* Start one command confined, and stay until all that came of it is gone. Started by fermix/native/confine.py only.
 *
 *   confine --parent PID --report FD [option…] -- PROGRAM ARGUMENT…
 *
 *   --read PATH      visible, can be read and executed          --cwd PATH     where the command starts
 *   --write PATH     visible, can be changed too                --tmp PATH     the folder that the command sees as /tmp
 *   --hide PATH      below one of these, yet closed             --limit N=V    a resource limit, see limit_names
 *   --link A B       a symbolic link in the view                --no-network   nothing but a loopback of its own
 *   --no-view        no namespaces: Landlock and seccomp alone
 *
 * Three processes. The keeper is what the daemon started: it dies with the daemon and takes the rest along. The init
 * is number 1 of a PID namespace with a view of the file system that holds the named paths and nothing else; it reaps,
 * and when it ends the kernel ends all that the command left. The command has no capabilities, can gain none, and
 * Landlock repeats for its writes what the view says; a filter of system calls holds what neither knows. Without a view the keeper is the subreaper of all that starts.
 *
 * What must stay true: the command does not start unless every part that was asked for holds. What failed is said in
 * one line on the report descriptor, "WHAT ERRNO PATH", where the command itself can never write.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

/* The kernel's own header may be older than the kernel: what we use of Landlock stands here. */
enum { LANDLOCK_CREATE = 444, LANDLOCK_ADD_RULE = 445, LANDLOCK_RESTRICT = 446 };
enum { LANDLOCK_VERSION = 1, LANDLOCK_BENEATH = 1 };
struct landlock_rules {
    uint64_t fs;
    uint64_t net;
    uint64_t scoped;
};
struct landlock_beneath {
    uint64_t allowed;
    int32_t folder;
} __attribute__((packed));
enum {
    FS_EXECUTE = 1 << 0,
    FS_READ_FILE = 1 << 2,
    FS_READ_DIR = 1 << 3,
    FS_LOOK = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR,
    FS_OF_FILES = FS_EXECUTE | FS_READ_FILE | 1 << 1 | 1 << 14, /* the rights a file can have: and write, truncate */
};
enum { NET_TCP = 3, SCOPE_ABSTRACT_SOCKETS = 1, SCOPE_SIGNALS = 2 };

#if defined(__x86_64__)
enum { OUR_ARCH = (int)AUDIT_ARCH_X86_64 };
#elif defined(__aarch64__)
enum { OUR_ARCH = (int)AUDIT_ARCH_AARCH64 };
#else
#error "the socket filter does not know this processor"
#endif

enum { CANNOT = 125, MOST = 512 };
enum { MOST_PROCESSES = 4096 }; /* of one command with all it starts */

enum kind { READ, WRITE, HIDE };
static struct {
    const char *path;
    enum kind kind;
} paths[MOST];
static const char *links[MOST][2];
static int path_count, link_count;
static const char *devices[] = {"/dev/null", "/dev/zero", "/dev/urandom"};
enum { DEVICES = sizeof devices / sizeof *devices };
static const char *const ROOT = "/tmp"; /* where the new root is mounted until it becomes "/", seen by nobody else */
static const char *cwd = "/", *tmp;
static int has_view = 1, has_network = 1, report = -1;
static int new_root = -1, covers[MOST + 1], cover_count; /* held while the view is made */
static pid_t expected_parent;

static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
enum { IGNORED = sizeof ignored / sizeof *ignored };

static const struct {
    const char *name;
    int resource;
} limit_names[] = {{"core", RLIMIT_CORE}, {"files", RLIMIT_NOFILE}, {"file_bytes", RLIMIT_FSIZE}, {"memory_bytes", RLIMIT_AS}};

static _Noreturn void fail(const char *what, const char *path)
{
    dprintf(report, "%s %d %s\n", what, errno, path);
    _exit(CANNOT);
}

static void need(int is_so, const char *what, const char *path)
{
    if (!is_so)
        fail(what, path);
}

static int open_place(int folder, const char *path, uint64_t resolve)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | resolve};
    return (int)syscall(SYS_openat2, folder, path, &how, sizeof how);
}

/* Paths come without links; one that has one by now was changed since it was decided on. */
static int hold(const char *path)
{
    int held = open_place(AT_FDCWD, path, 0);
    need(held >= 0, "view", path);
    return held;
}

/* ---- options ---- */

static void set_limit(const char *text)
{
    const char *sign = strchr(text, '=');
    for (size_t i = 0; sign != NULL && i < sizeof limit_names / sizeof *limit_names; i++)
        if (strncmp(text, limit_names[i].name, (size_t)(sign - text)) == 0) {
            rlim_t value = strtoull(sign + 1, NULL, 10);
            struct rlimit limit = {value, value};
            need(setrlimit(limit_names[i].resource, &limit) == 0, "limit", text);
            return;
        }
    errno = EINVAL;
    fail("limit", text);
}

static const char *next(char ***at)
{
    errno = EINVAL;
    need(*++*at != NULL, "usage", "a value is missing");
    return **at;
}

static void add_path(const char *path, enum kind kind)
{
    errno = E2BIG;
    need(path_count < MOST, "usage", path);
    paths[path_count].path = path;
    paths[path_count++].kind = kind;
}

static void add_link(const char *path, const char *target)
{
    errno = E2BIG;
    need(link_count < MOST, "usage", path);
    links[link_count][0] = path;
    links[link_count++][1] = target;
}

static char **read_options(char **at)
{
    for (at++; *at != NULL && strcmp(*at, "--") != 0; at++) {
        if (strcmp(*at, "--parent") == 0)
            expected_parent = atoi(next(&at));
        else if (strcmp(*at, "--report") == 0)
            report = atoi(next(&at));
        else if (strcmp(*at, "--read") == 0)
            add_path(next(&at), READ);
        else if (strcmp(*at, "--write") == 0)
            add_path(next(&at), WRITE);
        else if (strcmp(*at, "--hide") == 0)
            add_path(next(&at), HIDE);
        else if (strcmp(*at, "--link") == 0) {
            const char *path = next(&at);
            add_link(path, next(&at));
        } else if (strcmp(*at, "--cwd") == 0)
            cwd = next(&at);
        else if (strcmp(*at, "--tmp") == 0)
            tmp = next(&at);
        else if (strcmp(*at, "--limit") == 0)
            set_limit(next(&at));
        else if (strcmp(*at, "--no-network") == 0)
            has_network = 0;
        else if (strcmp(*at, "--no-view") == 0)
            has_view = 0;
        else {
            errno = EINVAL;
            fail("usage", *at);
        }
    }
    errno = EINVAL;
    need(*at != NULL && at[1] != NULL, "usage", "no program");
    return at + 1;
}

/* ---- the view: a new root that holds the named paths and nothing else ---- */

static void write_text(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);
    need(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text), "identity", path);
    close(file);
}

static void keep_identity(uid_t uid, gid_t gid)
{
    char line[64];
    write_text("/proc/self/setgroups", "deny");
    snprintf(line, sizeof line, "%u %u 1", uid, uid);
    write_text("/proc/self/uid_map", line);
    snprintf(line, sizeof line, "%u %u 1", gid, gid);
    write_text("/proc/self/gid_map", line);
}

/* Places are held by descriptor and no link is followed on the way: another command may change a folder of the new
 * root while we are in it, and must neither lead us out nor have a cover put anywhere else. */
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
static void make_view(void)
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

static void raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    need(any >= 0 && ioctl(any, SIOCSIFFLAGS, &request) == 0, "loopback", "");
    close(any);
}

/* ---- what the command may do ---- */

/* An ordinary user outside of namespaces has none to drop and may not lock the bits, nor needs it. */
static void drop_capabilities(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0}};
    int is_locked = prctl(PR_SET_SECUREBITS, SECURE_ALL_BITS | SECURE_ALL_LOCKS, 0, 0, 0) == 0;
    need(is_locked || (!has_view && getuid() != 0), "capabilities", "");
    need(syscall(SYS_capset, &header, none) == 0, "capabilities", "");
}

static void allow(int rules, const char *path, uint64_t allowed)
{
    struct stat state;
    int place = hold(path);
    need(fstat(place, &state) == 0, "landlock", path);
    struct landlock_beneath rule = {S_ISDIR(state.st_mode) ? allowed : allowed & FS_OF_FILES, place};
    need(syscall(LANDLOCK_ADD_RULE, rules, LANDLOCK_BENEATH, &rule, 0) == 0, "landlock", path);
    close(place);
}

static void restrict_files(long version)
{
    if (version <= 0 && has_view)
        return; /* the view alone says it too */
    need(version > 0, "landlock", "");
    uint64_t all = (version < 2 ? 1ULL << 13 : version < 3 ? 1ULL << 14 : 1ULL << 15) - 1;
    struct landlock_rules handled = {.fs = all};
    handled.net = version >= 4 && !has_network && !has_view ? NET_TCP : 0;
    handled.scoped = version >= 6 ? SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS : 0;
    size_t size = version < 4 ? 8 : version < 6 ? 16 : 24;
    int rules = (int)syscall(LANDLOCK_CREATE, &handled, size, 0);
    need(rules >= 0, "landlock", "");
    for (int i = 0; i < path_count; i++)
        if (paths[i].kind != HIDE)
            allow(rules, paths[i].path, paths[i].kind == WRITE ? all : FS_LOOK);
    if (tmp != NULL)
        allow(rules, has_view ? "/tmp" : tmp, all);
    allow(rules, "/proc", FS_LOOK);
    for (size_t i = 0; i < DEVICES; i++)
        if (access(devices[i], F_OK) == 0)
            allow(rules, devices[i], all & ~(uint64_t)FS_EXECUTE);
    if (has_view) {
        allow(rules, "/dev/pts", all & ~(uint64_t)FS_EXECUTE);
        allow(rules, "/", FS_READ_DIR); /* the new root holds empty folders and what was named */
    }
    need(syscall(LANDLOCK_RESTRICT, rules, 0) == 0, "landlock", "");
    close(rules);
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define ANSWER(what) BPF_STMT(BPF_RET | BPF_K, what)
#define REFUSE(call) IS(call, 0, 1), ANSWER(SECCOMP_RET_ERRNO | EACCES)

/* Refuse what no view and no rule on files holds: the user's kernel keys, the limits of processes outside, kinds of
 * sockets that no network namespace knows (those of a virtual machine to its host), and Unix sockets where those of
 * others can be reached by name, through which a desktop's own services would run anything. A pair of datagram
 * sockets is as good as a socket: each end can be connected elsewhere. io_uring would make sockets past this filter.
 * In a user namespace of its own a command would have all powers again, if only over what it makes there.
 */
static void restrict_calls(long landlock)
{
    const uint32_t yes = SECCOMP_RET_ALLOW, no = SECCOMP_RET_ERRNO | EACCES;
    int is_alone = has_view && (!has_network || landlock >= 6); /* abstract sockets belong to the network namespace */
    const uint32_t to_unix = is_alone ? yes : no, to_internet = has_view || has_network ? yes : no;
    struct sock_filter code[] = {
        LOAD(arch), IS(OUR_ARCH, 1, 0), ANSWER(no),
        LOAD(nr), BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1), ANSWER(no), /* the x32 numbers */
        REFUSE(SYS_io_uring_setup), REFUSE(SYS_keyctl), REFUSE(SYS_add_key), REFUSE(SYS_request_key),
        IS(SYS_clone3, 0, 1), ANSWER(SECCOMP_RET_ERRNO | ENOSYS), /* no filter sees its flags; clone is tried next */
        IS(SYS_unshare, 1, 0), IS(SYS_clone, 0, 4), LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER, 0, 1), ANSWER(no), ANSWER(yes),
        IS(SYS_shmat, 0, 1), ANSWER(has_view ? yes : no), /* the memory of others, unless the IPC namespace is ours */
        IS(SYS_prlimit64, 0, 4), LOAD(args[0]), IS(0, 0, 1), ANSWER(yes), ANSWER(has_view ? yes : no),
        IS(SYS_socketpair, 0, 6), LOAD(args[1]), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf),
        IS(SOCK_STREAM, 1, 0), IS(SOCK_SEQPACKET, 0, 1), ANSWER(yes), ANSWER(to_unix),
        IS(SYS_socket, 0, 8), LOAD(args[0]), IS(AF_UNIX, 0, 1), ANSWER(to_unix),
        IS(AF_INET, 2, 0), IS(AF_INET6, 1, 0), IS(AF_NETLINK, 0, 1), ANSWER(to_internet), ANSWER(has_network ? yes : no),
        ANSWER(yes),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0, "seccomp", "");
}

/* Of an ordinary user only: the kernel counts no processes of root. Without a view all of the user's would count. */
static void limit_processes(void)
{
    struct rlimit limit;
    need(getrlimit(RLIMIT_NPROC, &limit) == 0, "limit", "processes");
    if (!has_view || limit.rlim_cur <= MOST_PROCESSES)
        return;
    limit.rlim_cur = limit.rlim_max = MOST_PROCESSES;
    need(setrlimit(RLIMIT_NPROC, &limit) == 0, "limit", "processes");
}

/* Through a descriptor of the daemon's null device root could change its mode for everybody. */
static void take_own_null(void)
{
    struct stat state;
    if (!has_view || fstat(STDIN_FILENO, &state) != 0 || !S_ISCHR(state.st_mode))
        return;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    need(null >= 0 && dup2(null, STDIN_FILENO) == STDIN_FILENO, "view", "/dev/null");
}

static void start_command(char **argv)
{
    long landlock = syscall(LANDLOCK_CREATE, NULL, 0, LANDLOCK_VERSION);
    need(chdir(cwd) == 0, "folder", cwd);
    need(setsid() >= 0, "session", "");
    take_own_null();
    limit_processes();
    drop_capabilities();
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "privileges", "");
    restrict_files(landlock);
    restrict_calls(landlock);
    for (size_t i = 0; i < IGNORED; i++)
        signal(ignored[i], SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
    signal(SIGPIPE, SIG_DFL); /* Python ignores it, and an ignored signal stays so */
    need(syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC) == 0, "descriptors", "");
    execvp(argv[0], argv);
    fail("program", argv[0]);
}

/* ---- keeping ---- */

static int wait_for(pid_t command)
{
    int status = 0, found = 0;
    for (pid_t ended; (ended = waitpid(-1, &status, 0)) > 0 || errno == EINTR;)
        if (ended == command) {
            found = status;
            break;
        }
    return found;
}

/* Kill all that descends from us: orphans become our children, so we look until we have none. */
static void end_all(void)
{
    char text[4096];
    for (;;) {
        int list = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
        ssize_t length = list < 0 ? -1 : read(list, text, sizeof text - 1);
        close(list);
        text[length < 0 ? 0 : length] = '\0';
        for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " "))
            kill(atoi(word), SIGKILL);
        if (waitpid(-1, NULL, 0) < 0 && errno == ECHILD)
            return;
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
    }
}

static void on_orphaned(int number)
{
    (void)number;
    end_all();
    _exit(CANNOT);
}

static void die_with_parent(int number)
{
    need(prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) == 0, "parent", "");
    errno = ESRCH;
    need(getppid() == expected_parent, "parent", "");
}

/* The same where the parent has no number that we could see: the pipe that it holds open ends with it. */
static void die_with_keeper(const int held_by_keeper[2])
{
    close(held_by_keeper[1]);
    struct pollfd ended = {.fd = held_by_keeper[0], .events = POLLIN};
    need(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0, "parent", "");
    errno = ESRCH;
    need(poll(&ended, 1, 0) == 0, "parent", "");
    close(held_by_keeper[0]);
}

static void be_init(char **argv, int *status, uid_t uid, gid_t gid, const int held_by_keeper[2])
{
    keep_identity(uid, gid);
    die_with_keeper(held_by_keeper);
    if (!has_network)
        raise_loopback();
    make_view();
    need(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0, "init", ""); /* before there is anybody who could look into it */
    pid_t command = fork();
    need(command >= 0, "fork", "");
    if (command == 0)
        start_command(argv);
    drop_capabilities();
    *status = wait_for(command);
    _exit(0);
}

/* End as the command ended. */
static _Noreturn void end_as(int status)
{
    struct rlimit none = {0, 0};
    if (!WIFSIGNALED(status))
        _exit(WEXITSTATUS(status));
    setrlimit(RLIMIT_CORE, &none);
    signal(WTERMSIG(status), SIG_DFL);
    kill(getpid(), WTERMSIG(status));
    _exit(128 + WTERMSIG(status));
}

static int keep_namespaces(char **argv)
{
    uid_t uid = getuid();
    gid_t gid = getgid();
    int held_by_keeper[2], *status = mmap(NULL, sizeof *status, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(status != MAP_FAILED && pipe2(held_by_keeper, O_CLOEXEC) == 0, "memory", "");
    *status = CANNOT << 8;
    die_with_parent(SIGKILL);
    int network = has_network ? 0 : CLONE_NEWNET;
    long init = syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | network | SIGCHLD, 0, 0, 0, 0);
    need(init >= 0, "namespaces", "");
    if (init == 0)
        be_init(argv, status, uid, gid, held_by_keeper);
    int ended = wait_for((pid_t)init);
    return WIFEXITED(ended) && WEXITSTATUS(ended) == 0 ? *status : ended;
}

static int keep_tree(char **argv)
{
    need(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0, "subreaper", "");
    signal(SIGUSR1, on_orphaned);
    die_with_parent(SIGUSR1);
    pid_t command = fork();
    need(command >= 0, "fork", "");
    if (command == 0)
        start_command(argv);
    int status = wait_for(command);
    end_all();
    return status;
}

/* Where memory runs out, the command goes and not the daemon. A higher number that somebody chose stays. */
static void be_first_to_go(void)
{
    int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (file < 0 || write(file, "500", 3) != 3)
        return;
    close(file);
}

int main(int argc UNUSED, char **argv)
{
    char **command = read_options(argv);
    for (size_t i = 0; i < IGNORED; i++)
        signal(ignored[i], SIG_IGN); /* the daemon signals the command too; we stay to see it end */
    be_first_to_go();
    end_as(has_view ? keep_namespaces(command) : keep_tree(command));
}
