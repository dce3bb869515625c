// The state folder named by FAKEGPU_DIR, as the fake library and the fake nvidia-smi read it. README.md describes its files.
#ifndef FAKEGPU_STATE_H
#define FAKEGPU_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { MAX_GPUS = 32, MAX_MIG = 8, MAX_PROCESSES = 1024, TEXT = 256 };

// Hidden, so that the library exports the driver's names and nothing else.
#pragma GCC visibility push(hidden)

typedef struct {
    unsigned int pid;
    unsigned long long bytes; // ~0ULL when the driver does not say
    bool compute, graphics, mps;
    unsigned int gi, ci; // 0xFFFFFFFF outside MIG
} process_t;

// Finds the folder: the parent of the folder that this library or program lies in, where that has `gpus`; else FAKEGPU_DIR.
bool state_open(void);

// Opens a file of the state folder, where there is one, and leaves it open over exec.
void state_leave_open(const char *name);

// Appends a line to a file of the state folder.
void state_note(const char *name, const char *line);

// Both take a printf format for the path inside the state folder, and give false when the file is missing or empty.
bool state_text(char out[TEXT], const char *format, ...) __attribute__((format(printf, 2, 3)));
bool state_number(long long *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool state_exists(const char *format, ...) __attribute__((format(printf, 1, 2)));
FILE *state_file(const char *format, ...) __attribute__((format(printf, 1, 2))); // NULL when it cannot be opened

int state_gpus(void);
bool state_open_to_us(int gpu); // false where a device cgroup keeps its node from this process
int state_processes(int gpu, process_t *out); // at most MAX_PROCESSES

// Bytes taken by processes and by memory_used; mig < 0 means the whole device.
unsigned long long state_used(int gpu, int mig);

// False in the programs, which have the library's code in them.
bool state_in_library(void);

// A line of the file `hang`, `fail` or `crash` that names this call; gpu < 0 for calls without a device. value is -1 when the line has none.
bool state_rule(const char *file, const char *function, int gpu, long long *value);

// The line of gpus/<gpu>/xids that follows the first `after` lines; false when there is none.
bool state_xid(int gpu, int after, unsigned long long *xid, unsigned int *gi, unsigned int *ci);
int state_xid_count(int gpu);
void state_watch(int inotify, int gpu); // tells the descriptor of inotify(7) what changes there

// Links between two devices: number of NVLinks and the word for the PCIe path ("PIX", "SYS", …); false when `links` does not say.
bool state_link(int from, int to, int *nvlinks, char path[TEXT]);

#pragma GCC visibility pop
#endif
