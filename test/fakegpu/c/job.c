// fakegpu-job: a program on the fake GPUs. It takes its places, prints "ready" and sleeps.
//   --gpu INDEX       a device to be on; may be given several times
//   --mem BYTES       on each of them (K, M, G for binary sizes)
//   --kind C|G|C+G    compute, graphics
//   --seconds N       how long, default for ever
//   --fork-child N    leave a child in these places for N seconds and exit at once
//   --no-mps          do not go through MPS, although the environment leads there
//   --close-fds       that child closes every descriptor from 3 on and lets go of its standard streams
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "state.h"

enum { MAX_PLACES = 32 };

struct options {
    int gpus[MAX_PLACES], count;
    const char *bytes, *kind;
    long seconds, child_seconds; // < 0: for ever, no child
    int close_fds, no_mps;
};

static unsigned long long size(const char *text)
{
    char *unit;
    unsigned long long n = strtoull(text, &unit, 10);
    switch (*unit) {
    case 'G': return n << 30;
    case 'M': return n << 20;
    case 'K': return n << 10;
    }
    return n;
}

// limit is what CUDA_MPS_PINNED_DEVICE_MEM_LIMIT leaves a client of a device, ~0 without an entry for it.
static unsigned long long limit(int gpu)
{
    char uuid[TEXT];
    const char *all = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    const char *entry = all != NULL && state_text(uuid, "gpus/%d/uuid", gpu) ? strstr(all, uuid) : NULL;
    return entry != NULL && entry[strlen(uuid)] == '=' ? size(entry + strlen(uuid) + 1) : ~0ULL;
}

// connect is what the CUDA driver does: where a daemon runs, the process becomes its client, with its limits; where none
// does, it runs as without MPS.
static void connect(struct options *o)
{
    char path[4096];
    int daemon_pid = 0;
    const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
    if (pipe == NULL || o->no_mps)
        return;
    snprintf(path, sizeof path, "%s/nvidia-cuda-mps-control.pid", pipe);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return;
    if (fscanf(f, "%d", &daemon_pid) != 1 || kill(daemon_pid, 0) != 0)
        daemon_pid = 0;
    fclose(f);
    if (!daemon_pid)
        return;
    for (int i = 0; i < o->count; i++) {
        if (size(o->bytes) > limit(o->gpus[i])) {
            fprintf(stderr, "CUDA error: out of memory\n");
            exit(3);
        }
    }
    snprintf(path, sizeof path, "%s/clients.d/%d", pipe, (int)getpid());
    f = fopen(path, "w");
    if (f != NULL)
        fclose(f);
    if (strcmp(o->kind, "C") == 0)
        o->kind = "M+C";
}

// hold opens and maps the files of the devices, as CUDA does with /dev/nvidiaN. A mapping stays when the descriptor is
// closed.
static void hold(const struct options *o)
{
    const char *root = getenv("FAKEGPU_DIR");
    for (int i = 0; i < o->count; i++) {
        char path[4096];
        long long minor;
        if (!state_number(&minor, "gpus/%d/minor", o->gpus[i]))
            minor = o->gpus[i];
        snprintf(path, sizeof path, "%s/dev/nvidia%lld", root != NULL ? root : "", minor);
        int fd = open(path, O_RDWR);
        if (fd >= 0)
            mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    }
}

static void occupy(const struct options *o, pid_t pid)
{
    char temporary[4096], final[4096];
    const char *root = getenv("FAKEGPU_DIR");
    for (int i = 0; i < o->count; i++) {
        snprintf(temporary, sizeof temporary, "%s/gpus/%d/procs.d/.%d", root != NULL ? root : "", o->gpus[i], (int)pid);
        snprintf(final, sizeof final, "%s/gpus/%d/procs.d/%d", root != NULL ? root : "", o->gpus[i], (int)pid);
        FILE *f = fopen(temporary, "w");
        if (f == NULL || fprintf(f, "%s %s\n", o->bytes, o->kind) < 0 || fclose(f) != 0 || rename(temporary, final) != 0) {
            perror(final);
            exit(1);
        }
    }
    printf("ready\n");
    fflush(stdout);
}

static void stay(long seconds)
{
    if (seconds < 0)
        for (;;)
            pause();
    for (unsigned int left = (unsigned int)seconds; left > 0;)
        left = sleep(left);
}

static void leave_child(const struct options *o)
{
    int closed[2]; // the child has its end open until it has closed everything
    if (pipe(closed) < 0) {
        perror("pipe");
        exit(1);
    }
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        exit(1);
    }
    if (child > 0) {
        char nothing;
        close(closed[1]);
        while (o->close_fds && read(closed[0], &nothing, 1) > 0) {
        }
        occupy(o, child);
        return;
    }
    close(closed[0]);
    if (o->close_fds) {
        int null = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; fd++)
            dup2(null, fd);
        for (int fd = 3; fd < (int)sysconf(_SC_OPEN_MAX) && fd < 65536; fd++)
            if (fd != closed[1])
                close(fd);
        close(closed[1]); // the last one: the parent ends now
    }
    stay(o->child_seconds);
}

int main(int argc, char **argv)
{
    static const struct option names[] = {
        {"gpu", required_argument, NULL, 'g'}, {"mem", required_argument, NULL, 'm'}, {"kind", required_argument, NULL, 'k'},
        {"seconds", required_argument, NULL, 's'}, {"fork-child", required_argument, NULL, 'f'}, {"close-fds", no_argument, NULL, 'c'},
        {"no-mps", no_argument, NULL, 'n'}, {0}};
    struct options o = {.bytes = "1G", .kind = "C", .seconds = -1, .child_seconds = -1};
    state_open();
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 'g':
            if (o.count < MAX_PLACES)
                o.gpus[o.count++] = atoi(optarg);
            break;
        case 'm': o.bytes = optarg; break;
        case 'k': o.kind = optarg; break;
        case 's': o.seconds = atol(optarg); break;
        case 'f': o.child_seconds = atol(optarg); break;
        case 'c': o.close_fds = 1; break;
        case 'n': o.no_mps = 1; break;
        default: return 2;
        }
    }
    hold(&o);
    if (o.child_seconds >= 0) {
        leave_child(&o);
        return 0;
    }
    connect(&o);
    occupy(&o, getpid());
    stay(o.seconds);
    return 0;
}
