// The calls of libc through which a library reaches the kernel. A device file of the machine is an empty file in the machine's
// folder, so that others see who has it open, or one in memory; it is known again by its number. What is read of /proc and /sys
// comes from that folder too. Where a library would make
// or change device files, nothing happens.
#define _GNU_SOURCE
#include "preload.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// REAL is the function of libc that this one is in front of.
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

enum { PATH_SIZE = 4096, MAX_FILES = 4096 };

static const struct node none = {NO_DEVICE, 0};
static struct node files[MAX_FILES];

static struct node opened(int file) { return file >= 0 && file < MAX_FILES ? files[file] : none; }
static int remember(int file, struct node node)
{
    if (file >= 0 && file < MAX_FILES)
        files[file] = node;
    return file;
}

// in_machine is where the machine has this path of /proc or /sys.
static const char *in_machine(const char *path, char moved[PATH_SIZE])
{
    for (int i = 0; path != NULL && *root != '\0' && places[i] != NULL; i++)
        if (strncmp(path, places[i], strlen(places[i])) == 0) {
            snprintf(moved, PATH_SIZE, "%s%s", root, path);
            return moved;
        }
    return path;
}

// look finds out which device file a path is, and whether it may be opened, while the machine stays as it is.
static struct node look(const char *path, int *refused)
{
    struct node node = none;
    if (path == NULL)
        return node;
    refresh();
    node = node_at(path);
    *refused = node.kind == NO_DEVICE ? 0 : refusal(node);
    settle();
    return node;
}

// is_node says whether the machine's folder has a real device file there, behind which no driver is. Who may open it gets ENXIO.
static bool is_node(const char *path)
{
    struct stat found;
    int error = errno;
    bool is = syscall(SYS_newfstatat, AT_FDCWD, path, &found, 0) == 0 && S_ISCHR(found.st_mode);
    errno = error;
    return is;
}

static int open_device(const char *path, struct node node, int refused, int flags)
{
    errno = refused;
    if (errno != 0) {
        say("open %s: error %d\n", path, errno);
        return -1;
    }
    char in_folder[PATH_SIZE];
    snprintf(in_folder, sizeof in_folder, "%s%s", root, path);
    int file = (int)syscall(SYS_openat, AT_FDCWD, in_folder, O_RDWR | (flags & O_CLOEXEC));
    if (file < 0 && (errno == EACCES || errno == EPERM) && is_node(in_folder))
        return -1; // a wall is around it
    if (file < 0 && errno == ENOENT && getenv("LAB_NODES") != NULL)
        return -1; // or has taken it away
    if (file < 0)
        file = (int)syscall(SYS_memfd_create, "device", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
    say("open %s = %d\n", path, file);
    return remember(file, node);
}

static int open_path(int folder, const char *path, int flags, mode_t mode)
{
    char moved[PATH_SIZE];
    int refused = 0;
    struct node node = look(path, &refused);
    if (node.kind != NO_DEVICE)
        return open_device(path, node, refused, flags);
    return remember((int)syscall(SYS_openat, folder, in_machine(path, moved), flags, mode), none);
}

#define MODE(flags, mode)                       \
    mode_t mode = 0;                            \
    if ((flags) & (O_CREAT | O_TMPFILE)) {      \
        va_list arguments;                      \
        va_start(arguments, flags);             \
        mode = (mode_t)va_arg(arguments, int);  \
        va_end(arguments);                      \
    }
int open(const char *path, int flags, ...)
{
    MODE(flags, mode)
    return open_path(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...)
{
    MODE(flags, mode)
    return open_path(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}
int openat(int folder, const char *path, int flags, ...)
{
    MODE(flags, mode)
    return open_path(folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...)
{
    MODE(flags, mode)
    return open_path(folder, path, flags | O_LARGEFILE, mode);
}
FILE *fopen(const char *path, const char *mode)
{
    char moved[PATH_SIZE];
    return REAL(fopen)(in_machine(path, moved), mode);
}
FILE *fopen64(const char *path, const char *mode)
{
    char moved[PATH_SIZE];
    return REAL(fopen64)(in_machine(path, moved), mode);
}
DIR *opendir(const char *path)
{
    char moved[PATH_SIZE];
    return REAL(opendir)(in_machine(path, moved));
}
int scandir(const char *path, struct dirent ***list, int (*wanted)(const struct dirent *), int (*order)(const struct dirent **, const struct dirent **))
{
    char moved[PATH_SIZE];
    return REAL(scandir)(in_machine(path, moved), list, wanted, order);
}
ssize_t readlink(const char *path, char *target, size_t size)
{
    char moved[PATH_SIZE];
    return REAL(readlink)(in_machine(path, moved), target, size);
}
int access(const char *path, int mode)
{
    char moved[PATH_SIZE];
    int refused = 0;
    struct node node = look(path, &refused);
    if (node.kind == NO_DEVICE)
        return REAL(access)(in_machine(path, moved), mode);
    errno = node.kind == ABSENT ? ENOENT : 0;
    return node.kind == ABSENT ? -1 : 0;
}
// realpath gives the path as the machine has it, without the folder in front.
char *realpath(const char *path, char *resolved)
{
    char moved[PATH_SIZE];
    const char *within = in_machine(path, moved);
    if (within == path)
        return REAL(realpath)(path, resolved);
    char *found = REAL(realpath)(within, NULL);
    if (found == NULL)
        return NULL;
    const char *plain = strncmp(found, root, strlen(root)) == 0 ? found + strlen(root) : found;
    if (resolved == NULL)
        resolved = malloc(PATH_SIZE);
    if (resolved != NULL)
        snprintf(resolved, PATH_SIZE, "%s", plain);
    free(found);
    return resolved;
}

static void fill(struct node node, struct stat *to)
{
    memset(to, 0, sizeof *to);
    to->st_nlink = 1;
    describe(node, to);
}

// stat_device fills in what a device file looks like: 1 done, 0 it is none, -1 it is absent.
static int stat_device(const char *path, struct stat *to)
{
    int refused = 0;
    struct node node = look(path, &refused);
    if (node.kind == NO_DEVICE)
        return 0;
    if (refused == ENOENT) {
        errno = ENOENT;
        return -1;
    }
    fill(node, to);
    return 1;
}
// The old names with a version are those of a library that was linked with a glibc before 2.33.
#define STAT(name, type)                                            \
    int name(const char *path, struct type *to)                     \
    {                                                               \
        char moved[PATH_SIZE];                                      \
        int done = stat_device(path, (struct stat *)to);            \
        if (done != 0)                                              \
            return done < 0 ? -1 : 0;                               \
        return REAL(name)(in_machine(path, moved), to);             \
    }
#define OLD_STAT(name, type)                                        \
    int name(int version, const char *path, struct type *to)        \
    {                                                               \
        char moved[PATH_SIZE];                                      \
        int done = stat_device(path, (struct stat *)to);            \
        if (done != 0)                                              \
            return done < 0 ? -1 : 0;                               \
        int (*real)(int, const char *, struct type *) = dlsym(RTLD_NEXT, #name); \
        return real(version, in_machine(path, moved), to);          \
    }
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)
OLD_STAT(__xstat, stat)
OLD_STAT(__xstat64, stat64)
OLD_STAT(__lxstat, stat)

static int stat_file(int file, struct stat *to)
{
    fill(files[file], to);
    return 0;
}
int fstat(int file, struct stat *to) { return opened(file).kind == NO_DEVICE ? REAL(fstat)(file, to) : stat_file(file, to); }
int fstat64(int file, struct stat64 *to) { return opened(file).kind == NO_DEVICE ? REAL(fstat64)(file, to) : stat_file(file, (struct stat *)to); }
int __fxstat(int version, int file, struct stat *to)
{
    int (*real)(int, int, struct stat *) = dlsym(RTLD_NEXT, "__fxstat");
    return opened(file).kind == NO_DEVICE ? real(version, file, to) : stat_file(file, to);
}

// What would make, change or remove device files: as root the libraries do.
static bool of_devices(const char *path)
{
    int refused = 0;
    return look(path, &refused).kind != NO_DEVICE || (path != NULL && strncmp(path, "/dev/char/", 10) == 0);
}
int mknod(const char *path, mode_t mode, dev_t device) { return of_devices(path) ? 0 : REAL(mknod)(path, mode, device); }
int __xmknod(int version, const char *path, mode_t mode, dev_t *device)
{
    int (*real)(int, const char *, mode_t, dev_t *) = dlsym(RTLD_NEXT, "__xmknod");
    return of_devices(path) ? 0 : real(version, path, mode, device);
}
int chmod(const char *path, mode_t mode) { return of_devices(path) ? 0 : REAL(chmod)(path, mode); }
int chown(const char *path, uid_t user, gid_t group) { return of_devices(path) ? 0 : REAL(chown)(path, user, group); }
int unlink(const char *path) { return of_devices(path) ? 0 : REAL(unlink)(path); }
int remove(const char *path) { return of_devices(path) ? 0 : REAL(remove)(path); }
int symlink(const char *target, const char *path) { return of_devices(path) ? 0 : REAL(symlink)(target, path); }
int mkdir(const char *path, mode_t mode) { return of_devices(path) ? 0 : REAL(mkdir)(path, mode); }

int close(int file)
{
    remember(file, none);
    return REAL(close)(file);
}
static int copied(int from, int to) { return remember(to, opened(from)); }
int dup(int file) { return copied(file, REAL(dup)(file)); }
int dup2(int file, int to) { return copied(file, REAL(dup2)(file, to)); }
int dup3(int file, int to, int flags) { return copied(file, REAL(dup3)(file, to, flags)); }
static int file_control(int file, int command, void *argument)
{
    int answer = (int)syscall(SYS_fcntl, file, command, argument);
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? copied(file, answer) : answer;
}
#define FCNTL(name)                                      \
    int name(int file, int command, ...)                 \
    {                                                    \
        va_list arguments;                               \
        va_start(arguments, command);                    \
        void *argument = va_arg(arguments, void *);      \
        va_end(arguments);                               \
        return file_control(file, command, argument);    \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

// Registers and queues of a GPU are plain memory, in which nothing ever happens.
void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    if (opened(file).kind != NO_DEVICE) {
        protection = PROT_READ | PROT_WRITE;
        flags = (flags & ~MAP_SHARED) | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        file = -1;
        offset = 0;
    }
    return (void *)syscall(SYS_mmap, at, size, protection, flags, file, offset);
}
void *mmap64(void *at, size_t size, int protection, int flags, int file, off_t offset) { return mmap(at, size, protection, flags, file, offset); }

int ioctl(int file, unsigned long request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (opened(file).kind == NO_DEVICE)
        return (int)syscall(SYS_ioctl, file, request, argument);
    say("call %lx\n", request);
    refresh();
    int answer = answer_ioctl(files[file], request, argument);
    settle();
    return answer;
}
