/* The system calls Python lacks or cannot make safely. Called by sweep.py, group.py, opener.py and peer.py only.
 *
 * What must stay true: nothing here forks, and the sweep allocates no heap memory and opens no descriptor beyond the
 * few it holds in reserve, so that it still works when the process table is full and descriptors are used up. It
 * keeps the interpreter lock throughout, so the tables below have one user at a time. A call that this system does
 * not have raises OSError with ENOSYS.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __linux__
#include <dirent.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#elif defined(__APPLE__)
#include <sys/event.h>
#include <sys/un.h>
#endif

#define UNUSED __attribute__((unused))

static PyObject *raise_errno(int number)
{
    errno = number;
    return PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *none_or_errno(int failed)
{
    return failed ? raise_errno(errno) : Py_BuildValue("");
}

static PyObject *kill_group(PyObject *self UNUSED, PyObject *args)
{
    int pgid, signum;
    if (!PyArg_ParseTuple(args, "ii", &pgid, &signum))
        return NULL;
    if (pgid <= 1) /* 0 is our own group and -1 is everybody */
        return raise_errno(EINVAL);
    return none_or_errno(kill(-pgid, signum));
}

#ifdef __linux__

enum { RESERVED = 2 }; /* the most the sweep has open at once */
static int reserve[RESERVED] = {-1, -1};

static void fill_reserve(void)
{
    for (int i = 0; i < RESERVED; i++)
        if (reserve[i] < 0)
            reserve[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void free_reserve(void)
{
    for (int i = 0; i < RESERVED; i++)
        if (reserve[i] >= 0 && close(reserve[i]) == 0)
            reserve[i] = -1;
}

struct state {
    char letter;
    pid_t parent;
    pid_t session;
};

/* Read the start of a file into `text` and end it with NUL; -1 when it cannot be read. */
static ssize_t read_start(const char *path, char *text, size_t size)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return -1;
    ssize_t length = read(descriptor, text, size - 1);
    close(descriptor);
    if (length >= 0)
        text[length] = '\0';
    return length;
}

/* /proc/<pid>/stat: 17 (any (name) here) S 1 17 17 ... */
static int read_state(pid_t pid, struct state *state)
{
    char path[64], text[512];
    int parent, group, session;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (read_start(path, text, sizeof text) < 0)
        return -1;
    char *after_name = strrchr(text, ')');
    if (after_name == NULL || sscanf(after_name + 1, " %c %d %d %d", &state->letter, &parent, &group, &session) != 4)
        return -1;
    state->parent = parent;
    state->session = session;
    return 0;
}

enum owner { NOBODY, OURS, ANOTHER, UNKNOWN };

/* Whether a process really has no variables (fields 50 and 51 are where they begin and end): during exec, or when
 * exec has taken the memory away that we were about to read, nothing can be read either. */
static int has_no_variables(pid_t pid)
{
    char path[64], text[2048];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    char *word = read_start(path, text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    for (int field = 2; field < 50 && word != NULL; field++)
        word = strchr(word + 1, ' ');
    unsigned long long begin = 0, end = 0;
    return word != NULL && sscanf(word, "%llu %llu", &begin, &end) == 2 && begin == end && end != 0;
}

/* Whose marker a process was started with. `marker` is NAME=value; the same name with another value is ANOTHER. */
static enum owner read_owner(pid_t pid, const char *marker, size_t length)
{
    char path[64], window[4096];
    size_t kept = 0, name_length = (size_t)(strchr(marker, '=') - marker) + 1;
    enum owner owner = NOBODY;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return NOBODY;
    for (;;) {
        ssize_t got = read(descriptor, window + kept, sizeof window - kept);
        if (got <= 0)
            break;
        size_t filled = kept + (size_t)got;
        if (memmem(window, filled, marker, length) != NULL) {
            owner = OURS;
            break;
        }
        if (memmem(window, filled, marker, name_length) != NULL)
            owner = ANOTHER;
        kept = filled < length ? filled : length; /* a marker may lie across two reads */
        memmove(window, window + filled - kept, kept);
    }
    close(descriptor);
    return kept == 0 && owner == NOBODY && !has_no_variables(pid) ? UNKNOWN : owner;
}

struct found {
    pid_t pid;
    pid_t parent;
};

enum { MOST_FOUND = 8192 }; /* what does not fit is handed to us when its parent dies and is found by the next pass */
static struct found found[MOST_FOUND];
static size_t found_count;

static void add_found(pid_t pid, pid_t parent)
{
    for (size_t i = 0; i < found_count; i++)
        if (found[i].pid == pid)
            return;
    if (found_count < MOST_FOUND)
        found[found_count++] = (struct found){pid, parent};
}

/* The children of one thread of `pid`, from a list such as "812 813 ". */
static void add_children_of_thread(pid_t pid, const char *thread)
{
    char path[96], text[4096];
    size_t kept = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%.20s/children", (int)pid, thread);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    for (;;) {
        ssize_t got = read(descriptor, text + kept, sizeof text - 1 - kept);
        if (got <= 0)
            break;
        text[kept + (size_t)got] = '\0';
        char *word = text;
        for (char *space; (space = strchr(word, ' ')) != NULL; word = space + 1)
            add_found((pid_t)atoi(word), pid);
        kept = strlen(word); /* a number may be cut by the end of a read */
        memmove(text, word, kept);
    }
    close(descriptor);
}

static void add_children(pid_t pid)
{
    char path[64], entries[4096];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return;
    for (;;) {
        long length = syscall(SYS_getdents64, folder, entries, sizeof entries);
        if (length <= 0)
            break;
        for (long at = 0; at < length;) {
            struct dirent64 *entry = (struct dirent64 *)(entries + at);
            if (entry->d_name[0] != '.')
                add_children_of_thread(pid, entry->d_name);
            at += entry->d_reclen;
        }
    }
    close(folder);
}

static int is_spared(PyObject *spared, pid_t pid)
{
    PyObject *number = PyLong_FromLong((long)pid);
    int is_in = number != NULL && PySet_Contains(spared, number) == 1;
    Py_XDECREF(number);
    return is_in;
}

/* Orphans that the system handed to us: our own children in a session that is not ours. Returns how many of them
 * cannot be told yet. */
static long add_adopted(const char *marker, size_t length, PyObject *spared)
{
    pid_t us = getpid(), our_session = getsid(0);
    size_t kept = found_count;
    long unknown = 0;
    add_children(us);
    size_t end = found_count;
    for (size_t i = kept; i < end; i++) {
        struct state state;
        pid_t pid = found[i].pid;
        if (is_spared(spared, pid) || read_state(pid, &state) < 0)
            continue;
        if (state.letter == 'Z' || state.session == our_session)
            continue;
        enum owner owner = read_owner(pid, marker, length);
        unknown += owner == UNKNOWN;
        if (owner == OURS || owner == NOBODY)
            found[kept++] = found[i];
    }
    found_count = kept;
    return unknown;
}

/* Signal one process unless its number has been given to a stranger meanwhile; 1 when a living one was signalled. */
static int signal_found(const struct found *process, int signum)
{
    struct state state;
    int descriptor = (int)syscall(SYS_pidfd_open, process->pid, 0);
    if (descriptor < 0)
        return 0;
    int is_ours = read_state(process->pid, &state) == 0 && state.letter != 'Z' &&
                  (state.parent == process->parent || state.parent == getpid());
    int signalled = is_ours && syscall(SYS_pidfd_send_signal, descriptor, signum, NULL, 0) == 0;
    close(descriptor);
    return signalled;
}

static PyObject *sweep(PyObject *self UNUSED, PyObject *args)
{
    int root, signum;
    const char *marker;
    Py_ssize_t length;
    PyObject *spared;
    if (!PyArg_ParseTuple(args, "iiy#O", &root, &signum, &marker, &length, &spared))
        return NULL;
    if ((length > 0 && strchr(marker, '=') == NULL) || length > 1024)
        return raise_errno(EINVAL);
    free_reserve();
    found_count = 0;
    add_children((pid_t)root);
    long left = length > 0 ? add_adopted(marker, (size_t)length, spared) : 0;
    for (size_t i = 0; i < found_count; i++)
        add_children(found[i].pid);
    for (size_t i = 0; i < found_count; i++) /* parents stand before their children, so they cannot start new ones */
        left += signal_found(&found[i], signum);
    fill_reserve();
    return PyErr_Occurred() ? NULL : PyLong_FromLong(left);
}

static PyObject *become_subreaper(PyObject *self UNUSED, PyObject *args UNUSED)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    fill_reserve();
    Py_RETURN_NONE;
}

static PyObject *die_with_parent(PyObject *self UNUSED, PyObject *args)
{
    int signum;
    if (!PyArg_ParseTuple(args, "i", &signum))
        return NULL;
    return none_or_errno(prctl(PR_SET_PDEATHSIG, signum, 0, 0, 0));
}

static PyObject *openat2(PyObject *self UNUSED, PyObject *args)
{
    int folder;
    PyObject *path;
    unsigned long long flags, mode, resolve;
    if (!PyArg_ParseTuple(args, "iO&KKK", &folder, PyUnicode_FSConverter, &path, &flags, &mode, &resolve))
        return NULL;
    struct open_how how = {.flags = flags | O_CLOEXEC, .mode = mode, .resolve = resolve};
    const char *name = PyBytes_AsString(path);
    long descriptor;
    int number;
    Py_BEGIN_ALLOW_THREADS
    descriptor = syscall(SYS_openat2, folder, name, &how, sizeof how);
    number = errno;
    Py_END_ALLOW_THREADS
    Py_DECREF(path);
    return descriptor < 0 ? raise_errno(number) : PyLong_FromLong(descriptor);
}

#else
static PyObject *missing(PyObject *self UNUSED, PyObject *args UNUSED)
{
    return raise_errno(ENOSYS);
}

#define sweep missing
#define become_subreaper missing
#define die_with_parent missing
#define openat2 missing
#endif

/* A descriptor that turns readable when this child of ours has ended; waiting for it reaps nothing. */
static PyObject *exit_descriptor(PyObject *self UNUSED, PyObject *args)
{
    int pid;
    if (!PyArg_ParseTuple(args, "i", &pid))
        return NULL;
#ifdef __linux__
    int descriptor = (int)syscall(SYS_pidfd_open, pid, 0);
    return descriptor < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromLong(descriptor);
#elif defined(__APPLE__)
    struct kevent change;
    int descriptor = kqueue();
    if (descriptor < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    EV_SET(&change, (uintptr_t)pid, EVFILT_PROC, EV_ADD | EV_ONESHOT, NOTE_EXIT, 0, NULL);
    if (kevent(descriptor, &change, 1, NULL, 0, NULL) < 0) {
        int number = errno;
        close(descriptor);
        return raise_errno(number);
    }
    return PyLong_FromLong(descriptor);
#else
    return raise_errno(ENOSYS);
#endif
}

/* (uid, pid) of the process at the other end of a Unix socket, as the system recorded them. */
static PyObject *peer_credentials(PyObject *self UNUSED, PyObject *args)
{
    int descriptor;
    if (!PyArg_ParseTuple(args, "i", &descriptor))
        return NULL;
#ifdef __linux__
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    return Py_BuildValue("(ki)", (unsigned long)peer.uid, (int)peer.pid);
#elif defined(__APPLE__)
    uid_t uid;
    gid_t gid;
    pid_t pid;
    socklen_t size = sizeof pid;
    if (getpeereid(descriptor, &uid, &gid) != 0 ||
        getsockopt(descriptor, SOL_LOCAL, LOCAL_PEERPID, &pid, &size) != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    return Py_BuildValue("(ki)", (unsigned long)uid, (int)pid);
#else
    return raise_errno(ENOSYS);
#endif
}

static PyMethodDef methods[] = {
    {"kill_group", kill_group, METH_VARARGS, "kill_group(pgid, signum): signal a whole process group."},
    {"sweep", sweep, METH_VARARGS,
     "sweep(root_pid, signum, marker, spared): signal descendants and orphans; return how many were left before."},
    {"become_subreaper", become_subreaper, METH_NOARGS, "become_subreaper(): adopt orphaned descendants."},
    {"die_with_parent", die_with_parent, METH_VARARGS, "die_with_parent(signum): be signalled when our parent ends."},
    {"openat2", openat2, METH_VARARGS, "openat2(folder, path, flags, mode, resolve): open a path."},
    {"exit_descriptor", exit_descriptor, METH_VARARGS, "exit_descriptor(pid): readable once this child has ended."},
    {"peer_credentials", peer_credentials, METH_VARARGS, "peer_credentials(descriptor): uid and pid of a peer."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModule_Create(&module);
}
