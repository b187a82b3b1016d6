/* How the launcher speaks: one sentence on stderr, or a reason kept for the sentence that lists them all. */
#include "launcher.h"

#include <stdarg.h>
#include <stdlib.h>

static char kept[512];

void die(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fputs("fermix: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    exit(CANNOT_RUN);
}

int because(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(kept, sizeof kept, format, values);
    va_end(values);
    return -1;
}

const char *reason(void)
{
    return kept;
}
