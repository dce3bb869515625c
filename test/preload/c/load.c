#include "preload.h"

#include <fcntl.h>
#include <pthread.h>
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

static const char *machine; // its file
static struct stat read_as; // that file, as it was
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

// The functions that files.c replaces are not called here.
static void read_machine(void)
{
    char text[32768], *rest = text;
    int file = (int)syscall(SYS_openat, AT_FDCWD, machine, O_RDONLY | O_CLOEXEC);
    ssize_t n = file < 0 ? -1 : syscall(SYS_read, file, text, sizeof text - 1);
    if (n < 0)
        broken(machine);
    syscall(SYS_fstat, file, &read_as);
    syscall(SYS_close, file);
    text[n] = '\0';
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        if (*line != '\0' && *line != '#')
            read_line(line);
}

// The file is replaced by another, not written over.
void refresh(void)
{
    struct stat now;
    pthread_rwlock_rdlock(&lock);
    if (machine == NULL || syscall(SYS_newfstatat, AT_FDCWD, machine, &now, 0) != 0 ||
        (now.st_ino == read_as.st_ino && now.st_size == read_as.st_size && now.st_mtim.tv_sec == read_as.st_mtim.tv_sec && now.st_mtim.tv_nsec == read_as.st_mtim.tv_nsec))
        return; // a number of a file comes back when it is removed
    pthread_rwlock_unlock(&lock);
    pthread_rwlock_wrlock(&lock);
    forget_machine();
    read_machine();
    pthread_rwlock_unlock(&lock);
    pthread_rwlock_rdlock(&lock);
}
void settle(void) { pthread_rwlock_unlock(&lock); }

// load comes before the libraries' own constructors.
__attribute__((constructor(101))) static void load(void)
{
    static char folder[4096];
    const char *log = getenv("LAB_LOG");
    machine = getenv("LAB_MACHINE");
    if (machine == NULL)
        return;
    snprintf(folder, sizeof folder, "%s", machine);
    char *last = strrchr(folder, '/');
    if (last != NULL)
        *last = '\0';
    root = folder;
    read_machine();
    if (log != NULL) {
        int opened = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        log_file = (int)syscall(SYS_fcntl, opened, F_DUPFD_CLOEXEC, 900); // out of the way of what the program numbers itself
        syscall(SYS_close, opened);
    }
}
