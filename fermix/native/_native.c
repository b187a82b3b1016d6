/* The system calls Python lacks or cannot make safely. Called by sweep.py and opener.py only.
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
#include <sys/types.h>
#include <unistd.h>

#ifdef __linux__
#include <dirent.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

/* What sweep() was given of each living command; one without a signal is not swept and only tells whose an orphan is. */
struct tree {
    int root;
    int signum;
    const char *marker; /* NAME=value, the same name and length in all */
    Py_ssize_t length;
    PyObject *elders; /* children of ours that were there before it */
    long left;
};

enum { MOST_TREES = 1024, NOBODYS = -1, UNKNOWN = -2 };
static struct tree trees[MOST_TREES];
static int tree_count;

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

static int tree_of(const char *marker)
{
    for (int i = 0; i < tree_count; i++)
        if (memcmp(marker, trees[i].marker, (size_t)trees[i].length) == 0)
            return i;
    return NOBODYS;
}

/* Whose marker a process was started with. One that names no living command was made up, or is as good as none. */
static int read_owner(pid_t pid)
{
    char path[64], window[4096];
    size_t kept = 0, length = (size_t)trees[0].length;
    size_t name_length = (size_t)(strchr(trees[0].marker, '=') - trees[0].marker) + 1;
    int owner = NOBODYS;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return NOBODYS;
    for (ssize_t got; owner < 0 && (got = read(descriptor, window + kept, sizeof window - kept)) > 0;) {
        size_t filled = kept + (size_t)got;
        char *end = window + filled, *at = window;
        while (owner < 0 && (at = memmem(at, (size_t)(end - at), trees[0].marker, name_length)) != NULL &&
               (size_t)(end - at) >= length)
            owner = tree_of(at++);
        kept = filled < length - 1 ? filled : length - 1; /* a marker may lie across two reads */
        memmove(window, end - kept, kept);
    }
    close(descriptor);
    return kept == 0 && owner == NOBODYS && !has_no_variables(pid) ? UNKNOWN : owner;
}

struct found {
    pid_t pid;
    pid_t parent;
    int tree;
};

enum { MOST_FOUND = 8192 }; /* what does not fit is handed to us when its parent dies and is found by the next pass */
static struct found found[MOST_FOUND];
static size_t found_count;

static void add_found(pid_t pid, pid_t parent, int tree)
{
    for (size_t i = 0; i < found_count; i++)
        if (found[i].pid == pid)
            return;
    if (found_count < MOST_FOUND)
        found[found_count++] = (struct found){pid, parent, tree};
}

/* The children of one thread of `pid`, from a list such as "812 813 ". */
static void add_children_of_thread(pid_t pid, const char *thread, int tree)
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
            add_found((pid_t)atoi(word), pid, tree);
        kept = strlen(word); /* a number may be cut by the end of a read */
        memmove(text, word, kept);
    }
    close(descriptor);
}

static void add_children(pid_t pid, int tree)
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
                add_children_of_thread(pid, entry->d_name, tree);
            at += entry->d_reclen;
        }
    }
    close(folder);
}

static int is_in(PyObject *set, pid_t pid)
{
    PyObject *number = PyLong_FromLong((long)pid);
    int is_there = number != NULL && PySet_Contains(set, number) == 1;
    Py_XDECREF(number);
    return is_there;
}

/* An orphan without a marker belongs to a command that it did not exist before. */
static int tree_of_unmarked(pid_t pid)
{
    for (int i = 0; i < tree_count; i++)
        if (trees[i].signum != 0 && !is_in(trees[i].elders, pid))
            return i;
    return NOBODYS;
}

/* What cannot be told counts for every command that it may belong to, so that each looks again. */
static int count_for_all(pid_t pid)
{
    int counted = 0;
    for (int i = 0; i < tree_count; i++)
        if (trees[i].signum != 0 && !is_in(trees[i].elders, pid))
            counted = ++trees[i].left > 0;
    return counted;
}

/* What the system handed to us: children of ours in a session that is not ours, except the `kept`. One that has ended
 * is taken off the process table; it counts, since its children may have come to us after we had looked. */
static void add_adopted(PyObject *kept_ones)
{
    pid_t us = getpid(), our_session = getsid(0);
    size_t kept = found_count;
    add_children(us, NOBODYS);
    size_t end = found_count;
    for (size_t i = kept; i < end; i++) {
        struct state state;
        pid_t pid = found[i].pid;
        if (is_in(kept_ones, pid) || read_state(pid, &state) < 0 || state.session == our_session)
            continue;
        int owner = state.letter == 'Z' ? UNKNOWN : read_owner(pid);
        if (owner == UNKNOWN && count_for_all(pid) && state.letter == 'Z')
            waitpid(pid, NULL, WNOHANG);
        if (owner == NOBODYS)
            owner = tree_of_unmarked(pid);
        if (owner >= 0 && trees[owner].signum != 0)
            found[kept++] = (struct found){pid, us, owner};
    }
    found_count = kept;
}

/* Signal one process unless its number has been given to a stranger meanwhile; 1 when a living one was signalled, or
 * one was reaped that had ended since we found it. */
static int signal_found(const struct found *process, int signum)
{
    struct state state;
    int descriptor = (int)syscall(SYS_pidfd_open, process->pid, 0), counts = 0;
    if (descriptor < 0)
        return 0;
    int is_known = read_state(process->pid, &state) == 0;
    if (is_known && state.letter == 'Z')
        counts = state.parent == getpid() && waitpid(process->pid, NULL, WNOHANG) > 0;
    else if (is_known && (state.parent == process->parent || state.parent == getpid()))
        counts = syscall(SYS_pidfd_send_signal, descriptor, signum, NULL, 0) == 0;
    close(descriptor);
    return counts;
}

/* Take over what is to be swept; the objects live as long as the arguments do. */
static int read_trees(PyObject *given)
{
    tree_count = 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(given) && tree_count < MOST_TREES; i++) {
        struct tree *tree = &trees[tree_count++];
        tree->left = 0;
        if (!PyArg_ParseTuple(PyTuple_GetItem(given, i), "iiy#O!", &tree->root, &tree->signum, &tree->marker,
                              &tree->length, &PyFrozenSet_Type, &tree->elders))
            return -1;
        if (strchr(tree->marker, '=') == NULL || tree->length > 1024 || tree->length != trees[0].length)
            return raise_errno(EINVAL) == NULL ? -1 : 0;
    }
    return 0;
}

static PyObject *sweep(PyObject *self UNUSED, PyObject *args)
{
    PyObject *given, *kept;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &given, &PySet_Type, &kept) || read_trees(given) < 0)
        return NULL;
    free_reserve();
    found_count = 0;
    for (int i = 0; i < tree_count; i++)
        if (trees[i].signum != 0)
            add_children((pid_t)trees[i].root, i);
    if (tree_count > 0)
        add_adopted(kept);
    for (size_t i = 0; i < found_count; i++)
        add_children(found[i].pid, found[i].tree);
    for (size_t i = 0; i < found_count; i++) /* parents stand before their children, so they cannot start new ones */
        trees[found[i].tree].left += signal_found(&found[i], trees[found[i].tree].signum);
    fill_reserve();
    PyObject *left = PyErr_Occurred() ? NULL : PyTuple_New(tree_count);
    for (int i = 0; left != NULL && i < tree_count; i++)
        PyTuple_SetItem(left, i, PyLong_FromLong(trees[i].left));
    return left;
}

static PyObject *control(PyObject *self UNUSED, PyObject *args)
{
    int option;
    unsigned long value;
    if (!PyArg_ParseTuple(args, "ik", &option, &value))
        return NULL;
    fill_reserve();
    return none_or_errno(prctl(option, value, 0, 0, 0));
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
#define control missing
#define openat2 missing
#endif

static PyMethodDef methods[] = {
    {"kill_group", kill_group, METH_VARARGS, "kill_group(pgid, signum): signal a whole process group."},
    {"sweep", sweep, METH_VARARGS,
     "sweep(trees, kept): signal descendants and orphans, reap ended ones; return how many of each were left."},
    {"control", control, METH_VARARGS, "control(option, value): prctl of this process, and hold the sweep's reserve."},
    {"openat2", openat2, METH_VARARGS, "openat2(folder, path, flags, mode, resolve): open a path."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModule_Create(&module);
}
