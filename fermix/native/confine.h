/* What the parts of `confine` share: what was asked for, and how a wall that cannot be built is reported. */

#ifndef CONFINE_H
#define CONFINE_H

#define _GNU_SOURCE
#include <stdint.h>
#include <sys/types.h>

enum { CANNOT = 125, MOST = 512 };

enum kind { READ, WRITE, HIDE };
struct path {
    const char *path;
    enum kind kind;
};

/* The options, as confine.c explains them. */
extern struct path paths[MOST];
extern int path_count, has_view, has_network;
extern const char *tmp;

enum { DEVICES = 3 };
extern const char *const devices[DEVICES];

/* Say on the report descriptor what failed, with errno, and end; nothing has run then. */
_Noreturn void fail(const char *what, const char *path);
void need(int is_so, const char *what, const char *path);

void add_link(const char *path, const char *target);

/* Hold a path by descriptor, below `folder` if `resolve` says so. No link is followed; -1 when one is there. */
int open_place(int folder, const char *path, uint64_t resolve);
/* The same for a path that must be there. */
int hold(const char *path);

/* confine_view.c: to be called in fresh namespaces, with all powers over them. */
void keep_identity(uid_t uid, gid_t gid);
void make_view(void);

/* confine_rules.c: to be called by the command itself before it becomes one, in this order. */
long landlock_version(void);
void limit_processes(void);
void drop_capabilities(void);
void restrict_files(long landlock);
void restrict_calls(long landlock);

#endif
