/* What a command may do: the powers that are taken from it just before it starts. Called by confine.c. */

#include "confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

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
    FS_CONTROL_DEVICE = 1 << 15,
    FS_OF_FILES = FS_EXECUTE | FS_READ_FILE | 1 << 1 | 1 << 14 | FS_CONTROL_DEVICE, /* and write, and truncate */
};
enum { NET_TCP = 3, SCOPE_ABSTRACT_SOCKETS = 1, SCOPE_SIGNALS = 2 };

#if defined(__x86_64__)
enum { OUR_ARCH = (int)AUDIT_ARCH_X86_64 };
#elif defined(__aarch64__)
enum { OUR_ARCH = (int)AUDIT_ARCH_AARCH64 };
#else
#error "the socket filter does not know this processor"
#endif

enum { MOST_PROCESSES = 4096, MOST_OF_USER = 16384 }; /* of a command with all it starts; of all its user runs */

long landlock_version(void)
{
    return syscall(LANDLOCK_CREATE, NULL, 0, LANDLOCK_VERSION);
}

/* An ordinary user outside of namespaces has none to drop and may not lock the bits, nor needs it. */
void drop_capabilities(void)
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

void restrict_files(long version)
{
    if (version <= 0 && has_view)
        return; /* the view alone says it too */
    need(version > 0, "landlock", "");
    uint64_t all = (1ULL << (version < 2 ? 13 : version < 3 ? 14 : version < 5 ? 15 : 16)) - 1;
    struct landlock_rules handled = {.fs = all};
    handled.net = version >= 4 && !has_network && !has_view ? NET_TCP : 0;
    handled.scoped = version >= 6 ? SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS : 0;
    size_t size = version < 4 ? 8 : version < 6 ? 16 : 24;
    int rules = (int)syscall(LANDLOCK_CREATE, &handled, size, 0);
    need(rules >= 0, "landlock", "");
    for (int i = 0; i < path_count; i++)
        if (paths[i].kind != HIDE)
            allow(rules, paths[i].path, paths[i].kind == WRITE ? all & ~(uint64_t)FS_CONTROL_DEVICE : FS_LOOK);
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
 * In a user namespace of its own a command would have all powers again, if only over what it makes there. Programs in
 * the kernel, its counters and faults handled by programs are what attacks on the kernel itself are made of.
 */
void restrict_calls(long landlock)
{
    const uint32_t yes = SECCOMP_RET_ALLOW, no = SECCOMP_RET_ERRNO | EACCES;
    int is_alone = has_view && (!has_network || landlock >= 6); /* abstract sockets belong to the network namespace */
    const uint32_t to_unix = is_alone ? yes : no, to_internet = has_view || has_network ? yes : no;
    struct sock_filter code[] = {
        LOAD(arch), IS(OUR_ARCH, 1, 0), ANSWER(no),
        LOAD(nr), BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1), ANSWER(no), /* the x32 numbers */
        REFUSE(SYS_io_uring_setup), REFUSE(SYS_keyctl), REFUSE(SYS_add_key), REFUSE(SYS_request_key),
        REFUSE(SYS_bpf), REFUSE(SYS_perf_event_open), REFUSE(SYS_userfaultfd),
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

/* Of an ordinary user only: the kernel counts no processes of root. Without a view all of the user's count. */
void limit_processes(void)
{
    struct rlimit limit;
    rlim_t most = has_view ? MOST_PROCESSES : MOST_OF_USER;
    need(getrlimit(RLIMIT_NPROC, &limit) == 0, "limit", "processes");
    if (limit.rlim_cur <= most)
        return;
    limit.rlim_cur = limit.rlim_max = most;
    need(setrlimit(RLIMIT_NPROC, &limit) == 0, "limit", "processes");
}
