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
 *   confine --landlock                                          say which version this kernel has, 0 for none
 *
 * Three processes. The keeper is what the daemon started: it dies with the daemon and takes the rest along. The init
 * is number 1 of a PID namespace with a view of the file system that holds the named paths and nothing else; it reaps,
 * and when it ends the kernel ends all that the command left. The command has no capabilities, can gain none, and
 * Landlock repeats for its writes what the view says; a filter of system calls holds what neither knows. Without a view
 * the keeper is the subreaper of all that starts. confine_view.c makes the view, confine_rules.c takes the powers.
 *
 * What must stay true: the command does not start unless every part that was asked for holds. What failed is said in
 * one line on the report descriptor, "WHAT ERRNO PATH", where the command itself can never write.
 */

#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/openat2.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

struct path paths[MOST];
int path_count, has_view = 1, has_network = 1;
const char *tmp;
static const char *cwd = "/";
static int report = -1;
static pid_t expected_parent;

static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
enum { IGNORED = sizeof ignored / sizeof *ignored };

static const struct {
    const char *name;
    int resource;
} limit_names[] = {{"core", RLIMIT_CORE}, {"files", RLIMIT_NOFILE}, {"file_bytes", RLIMIT_FSIZE}, {"memory_bytes", RLIMIT_AS}};

_Noreturn void fail(const char *what, const char *path)
{
    dprintf(report, "%s %d %s\n", what, errno, path);
    _exit(CANNOT);
}

void need(int is_so, const char *what, const char *path)
{
    if (!is_so)
        fail(what, path);
}

int open_place(int folder, const char *path, uint64_t resolve)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | resolve};
    return (int)syscall(SYS_openat2, folder, path, &how, sizeof how);
}

/* Paths come without links; one that has one by now was changed since it was decided on. */
int hold(const char *path)
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
            struct rlimit limit;
            need(getrlimit(limit_names[i].resource, &limit) == 0, "limit", text);
            value = value < limit.rlim_max ? value : limit.rlim_max; /* one that somebody chose may be lower */
            limit.rlim_cur = limit.rlim_max = value;
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

/* ---- the command ---- */

/* Through a descriptor of the daemon's null device root could change its mode for everybody. */
static void take_own_null(void)
{
    struct stat state;
    if (!has_view || fstat(STDIN_FILENO, &state) != 0 || !S_ISCHR(state.st_mode))
        return;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    need(null >= 0 && dup2(null, STDIN_FILENO) == STDIN_FILENO, "view", "/dev/null");
}

/* An ignored signal stays so: Python ignores one, and whoever started the daemon may have ignored others. The library
 * would leave out two that it keeps for itself. */
static void heed_all_signals(void)
{
    static const char as_usual[64]; /* the kernel's form of SIG_DFL without mask and flags */
    for (int number = 1; number < NSIG; number++)
        syscall(SYS_rt_sigaction, number, as_usual, NULL, sizeof(uint64_t));
}

static void start_command(char **argv)
{
    long landlock = landlock_version();
    need(chdir(cwd) == 0, "folder", cwd);
    need(setsid() >= 0, "session", "");
    take_own_null();
    limit_processes();
    drop_capabilities();
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "privileges", "");
    restrict_files(landlock);
    restrict_calls(landlock);
    heed_all_signals();
    need(syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC) == 0, "descriptors", "");
    execvp(argv[0], argv);
    fail("program", argv[0]);
}

static void raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    need(any >= 0 && ioctl(any, SIOCSIFFLAGS, &request) == 0, "loopback", "");
    close(any);
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
    if (argv[1] != NULL && strcmp(argv[1], "--landlock") == 0)
        return printf("%ld\n", landlock_version() < 0 ? 0 : landlock_version()) < 0;
    char **command = read_options(argv);
    for (size_t i = 0; i < IGNORED; i++)
        signal(ignored[i], SIG_IGN); /* the daemon signals the command too; we stay to see it end */
    be_first_to_go();
    end_as(has_view ? keep_namespaces(command) : keep_tree(command));
}
