#include "preload.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

const char *root = "";

static int log_file = -1;

void say(const char *format, ...)
{
    char line[4096];
    va_list arguments;
    if (log_file < 0)
        return;
    va_start(arguments, format);
    int n = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (n > (int)sizeof line)
        n = sizeof line;
    if (syscall(SYS_write, log_file, line, n) < 0)
        log_file = -1;
}

void broken(const char *line)
{
    fprintf(stderr, "cannot read the invented machine: %s\n", line);
    _exit(125);
}

// The file is read before the libraries' own constructors, without the functions that files.c replaces.
__attribute__((constructor(101))) static void load(void)
{
    static char text[32768], folder[4096];
    const char *path = getenv("LAB_MACHINE"), *log = getenv("LAB_LOG");
    if (path == NULL)
        return;
    snprintf(folder, sizeof folder, "%s", path);
    char *last = strrchr(folder, '/');
    if (last != NULL)
        *last = '\0';
    root = folder;
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = file < 0 ? -1 : syscall(SYS_read, file, text, sizeof text - 1);
    if (n < 0)
        broken(path);
    syscall(SYS_close, file);
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        if (*line != '\0' && *line != '#')
            read_line(line);
    if (log != NULL) {
        int opened = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        log_file = (int)syscall(SYS_fcntl, opened, F_DUPFD_CLOEXEC, 900); // out of the way of what the program numbers itself
        syscall(SYS_close, opened);
    }
}
