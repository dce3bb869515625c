#define _GNU_SOURCE
#include "state.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 4096 };
static const unsigned int NONE = 0xFFFFFFFF;

static char root[PATH];

// A program that opens several copies of the library gets one machine per copy: the environment could name only one.
bool state_open(void)
{
    Dl_info info;
    struct stat st;
    if (root[0] != '\0')
        return true;
    if (dladdr((void *)state_open, &info) != 0 && strchr(info.dli_fname, '/') != NULL) {
        char beside[PATH], gpus[PATH + 8];
        snprintf(beside, sizeof beside, "%.*s/..", (int)(strrchr(info.dli_fname, '/') - info.dli_fname), info.dli_fname);
        snprintf(gpus, sizeof gpus, "%s/gpus", beside);
        if (stat(gpus, &st) == 0)
            strcpy(root, beside);
    }
    const char *named = getenv("FAKEGPU_DIR");
    if (root[0] == '\0' && named != NULL && strlen(named) < sizeof root)
        strcpy(root, named);
    return root[0] != '\0';
}

bool state_in_library(void)
{
    Dl_info info;
    return dladdr((void *)state_in_library, &info) != 0 && strstr(info.dli_fname, "libnvidia-ml") != NULL;
}

static bool path_of(char out[PATH], const char *format, va_list args)
{
    int n = snprintf(out, PATH, "%s/", root);
    if (root[0] == '\0' || n >= PATH)
        return false;
    int m = vsnprintf(out + n, PATH - n, format, args);
    return m >= 0 && n + m < PATH;
}

FILE *state_file(const char *format, ...)
{
    char path[PATH];
    va_list args;
    va_start(args, format);
    bool ok = path_of(path, format, args);
    va_end(args);
    return ok ? fopen(path, "re") : NULL;
}

bool state_exists(const char *format, ...)
{
    char path[PATH];
    struct stat st;
    va_list args;
    va_start(args, format);
    bool ok = path_of(path, format, args);
    va_end(args);
    return ok && stat(path, &st) == 0;
}

// Without O_CLOEXEC: a driver's device nodes may outlive an exec.
void state_leave_open(const char *name)
{
    char path[PATH + 64];
    snprintf(path, sizeof path, "%s/%.60s", root, name);
    if (open(path, O_RDONLY) < 0)
        return; // there is none
}

void state_note(const char *name, const char *line)
{
    char path[PATH + 64], text[TEXT];
    snprintf(path, sizeof path, "%s/%.60s", root, name);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    int n = snprintf(text, sizeof text, "%s\n", line);
    if (fd < 0 || write(fd, text, (size_t)n) != n)
        return; // the test will miss it
    close(fd);
}

// Reads the first line of a file that there may be; errno says why not.
static bool first_line(char out[TEXT], const char *path)
{
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    errno = 0;
    bool ok = fgets(out, TEXT, f) != NULL;
    fclose(f);
    if (!ok)
        return false;
    out[strcspn(out, "\n")] = '\0';
    return out[0] != '\0';
}

// Finds the line "name value" in the file `values` of the folder that path would be in.
static bool listed_value(char out[TEXT], char path[PATH])
{
    char *name = strrchr(path, '/') + 1, line[TEXT], word[TEXT];
    size_t length = strlen(name);
    if (length >= sizeof word || (size_t)(name - path) + sizeof "values" > PATH)
        return false;
    strcpy(word, name);
    strcpy(name, "values");
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    bool found = false;
    while (!found && fgets(line, sizeof line, f) != NULL)
        found = strncmp(line, word, length) == 0 && line[length] == ' ';
    fclose(f);
    if (!found)
        return false;
    line[strcspn(line, "\n")] = '\0';
    strcpy(out, line + length + 1);
    return out[0] != '\0';
}

static bool value(char out[TEXT], const char *format, va_list args)
{
    char path[PATH];
    if (!path_of(path, format, args))
        return false;
    return first_line(out, path) || (errno == ENOENT && listed_value(out, path));
}

bool state_text(char out[TEXT], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bool ok = value(out, format, args);
    va_end(args);
    return ok;
}

// Decimal or 0x…, and K, M, G for binary sizes, so that a shell can write them.
static bool parse_number(const char *text, long long *out)
{
    char *end;
    *out = strtoll(text, &end, 0);
    if (end == text)
        return false;
    const char *units = "KMG", *unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL)
        *out <<= 10 * (unit - units + 1);
    return true;
}

bool state_number(long long *out, const char *format, ...)
{
    char text[TEXT];
    va_list args;
    va_start(args, format);
    bool ok = value(text, format, args);
    va_end(args);
    return ok && parse_number(text, out);
}

int state_gpus(void)
{
    int n = 0;
    while (n < MAX_GPUS && state_exists("gpus/%d", n))
        n++;
    return n;
}

// There is no driver behind the node (ENXIO); a device cgroup answers EPERM before anybody asks for one.
bool state_open_to_us(int gpu)
{
    char node[TEXT];
    if (!state_text(node, "gpus/%d/node", gpu))
        return true;
    int fd = open(node, O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0 || errno != EPERM;
}

// A zombie has closed its files, so the driver has taken its memory back already.
static bool alive(unsigned int pid)
{
    char path[64], line[TEXT];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    bool ok = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    const char *name_end = ok ? strrchr(line, ')') : NULL;
    return name_end != NULL && strchr("ZX", name_end[2]) == NULL;
}

// "bytes kind [gi ci] [track]": what stands after the pid.
static bool parse_process(char *text, process_t *p, bool *track)
{
    char *rest, *bytes = strtok_r(text, " \t\n", &rest), *kind = strtok_r(NULL, " \t\n", &rest), *word;
    long long number = -1;
    if (bytes == NULL || kind == NULL || (strcmp(bytes, "-") != 0 && !parse_number(bytes, &number)))
        return false;
    p->bytes = (unsigned long long)number;
    p->compute = strchr(kind, 'C') != NULL;
    p->graphics = strchr(kind, 'G') != NULL;
    p->mps = strchr(kind, 'M') != NULL;
    p->gi = p->ci = NONE;
    unsigned int *ids[] = {&p->gi, &p->ci};
    for (int n = 0; (word = strtok_r(NULL, " \t\n", &rest)) != NULL;) {
        if (strcmp(word, "track") == 0)
            *track = true;
        else if (n < 2)
            *ids[n++] = (unsigned int)strtoul(word, NULL, 10);
    }
    return true;
}

static int listed_processes(int gpu, process_t *out)
{
    FILE *f = state_file("gpus/%d/processes", gpu);
    if (f == NULL)
        return 0;
    char line[TEXT], *rest;
    int n = 0;
    while (n < MAX_PROCESSES && fgets(line, sizeof line, f) != NULL) {
        bool track = false;
        out[n].pid = (unsigned int)strtoul(line, &rest, 10);
        if (rest != line && parse_process(rest, &out[n], &track) && (!track || alive(out[n].pid)))
            n++;
    }
    fclose(f);
    return n;
}

static int joined_processes(int gpu, process_t *out, int room)
{
    char path[PATH], text[TEXT];
    if (snprintf(path, sizeof path, "%s/gpus/%d/procs.d", root, gpu) >= PATH)
        return 0;
    DIR *dir = opendir(path);
    if (dir == NULL)
        return 0;
    int n = 0;
    for (struct dirent *entry; n < room && (entry = readdir(dir)) != NULL;) {
        bool track = true;
        char *end;
        out[n].pid = (unsigned int)strtoul(entry->d_name, &end, 10);
        if (out[n].pid != 0 && *end == '\0' && alive(out[n].pid) &&
            state_text(text, "gpus/%d/procs.d/%s", gpu, entry->d_name) && parse_process(text, &out[n], &track))
            n++;
    }
    closedir(dir);
    return n;
}

int state_processes(int gpu, process_t *out)
{
    int n = listed_processes(gpu, out);
    return n + joined_processes(gpu, out + n, MAX_PROCESSES - n);
}

unsigned long long state_used(int gpu, int mig)
{
    process_t list[MAX_PROCESSES];
    long long used = 0, gi = 0;
    if (mig < 0)
        state_number(&used, "gpus/%d/memory_used", gpu);
    else
        state_number(&gi, "gpus/%d/mig/%d/gi", gpu, mig);
    int n = state_processes(gpu, list);
    for (int i = 0; i < n; i++)
        if (list[i].bytes != ~0ULL && (mig < 0 || list[i].gi == gi))
            used += (long long)list[i].bytes;
    return (unsigned long long)used;
}

bool state_rule(const char *file, const char *function, int gpu, long long *value)
{
    FILE *f = state_file("%s", file);
    if (f == NULL)
        return false;
    char line[TEXT], name[TEXT], device[TEXT];
    bool found = false;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        *value = -1;
        int n = sscanf(line, "%255s %255s %lld", name, device, value);
        bool any = n < 2 || strcmp(device, "*") == 0;
        found = n >= 1 && (strcmp(name, "*") == 0 || strcmp(name, function) == 0) && (any || (gpu >= 0 && atoi(device) == gpu));
    }
    fclose(f);
    return found;
}

bool state_xid(int gpu, int after, unsigned long long *xid, unsigned int *gi, unsigned int *ci)
{
    FILE *f = state_file("gpus/%d/xids", gpu);
    if (f == NULL)
        return false;
    char line[TEXT];
    bool found = false;
    for (int n = 0; !found && fgets(line, sizeof line, f) != NULL;) {
        *gi = *ci = NONE;
        found = sscanf(line, "%llu %u %u", xid, gi, ci) >= 1 && n++ >= after;
    }
    fclose(f);
    return found;
}

void state_watch(int inotify, int gpu)
{
    char path[PATH];
    if (snprintf(path, sizeof path, "%s/gpus/%d", root, gpu) < PATH)
        inotify_add_watch(inotify, path, IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF);
}

int state_xid_count(int gpu)
{
    unsigned long long xid;
    unsigned int gi, ci;
    int n = 0;
    while (state_xid(gpu, n, &xid, &gi, &ci))
        n++;
    return n;
}

// Row <from>, column <to>: "X", a path such as "SYS", "NV12" (then the path is SYS), or "NV12/PIX".
bool state_link(int from, int to, int *nvlinks, char path[TEXT])
{
    FILE *f = state_file("links");
    if (f == NULL)
        return false;
    char line[4096] = "", *rest, *word = NULL;
    for (int row = 0; row <= from; row++)
        if (fgets(line, sizeof line, f) == NULL)
            line[0] = '\0';
    fclose(f);
    word = strtok_r(line, " \t\n", &rest);
    for (int column = 0; word != NULL && column < to; column++)
        word = strtok_r(NULL, " \t\n", &rest);
    if (word == NULL)
        return false;
    *nvlinks = 0;
    if (strncmp(word, "NV", 2) == 0) {
        *nvlinks = atoi(word + 2);
        word = strchr(word, '/') != NULL ? strchr(word, '/') + 1 : "SYS";
    }
    snprintf(path, TEXT, "%s", word);
    return true;
}
