/* Stands in for the frozen program in the launcher's tests: it tells what it was started with. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static void tell_start(char **argv)
{
    struct stat status;
    stat("/proc/self/exe", &status);
    printf("inode %llu\nargv0 %s\n", (unsigned long long)status.st_ino, argv[0]);
    for (char **variable = environ; *variable != NULL; variable++)
        printf("env %s\n", *variable);
    for (int file = 0; file < 64; file++) {
        int flags = fcntl(file, F_GETFL);
        if (flags >= 0)
            printf("fd %d %s\n", file, (flags & O_ACCMODE) == O_RDONLY ? "read" : "write");
    }
}

/* Answer each name on stdin with the content of that file beside the program, as a late import would read it. */
static void read_late(void)
{
    char folder[4096], name[256], content[256];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[length] = '\0';
    *strrchr(folder, '/') = '\0';
    puts("ready");
    fflush(stdout);
    while (scanf("%255s", name) == 1) {
        char path[8192];
        snprintf(path, sizeof path, "%s/%s", folder, name);
        FILE *file = fopen(path, "r");
        puts(file != NULL && fgets(content, sizeof content, file) != NULL ? content : "missing");
        fflush(stdout);
        if (file != NULL)
            fclose(file);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "late") == 0)
        read_late();
    else if (argc > 1 && strcmp(argv[1], "start") == 0)
        tell_start(argv);
    else
        puts(VERSION);
    return argc > 2 ? atoi(argv[2]) : 0;
}
