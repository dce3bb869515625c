// A preloaded library that stands in for a kernel driver: what files.c and load.c give, and what the driver has to have.
#ifndef PRELOAD_H
#define PRELOAD_H
#include <sys/stat.h>

// A device file of the machine. Kinds from 1 on are the driver's own.
enum { ABSENT = -1, NO_DEVICE = 0 };
struct node {
    int kind, minor;
};

extern const char *root; // folder in which /proc and /sys of the machine are

// say writes a line to the log that LAB_LOG names.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
// refresh reads the machine's file again where it has changed: while a call is answered, it stays as it is until settle.
void refresh(void);
void settle(void);
// broken ends the program: the machine's file cannot be read.
void broken(const char *line) __attribute__((noreturn));

// The driver has these.
extern const char *const places[];                                         // what of /proc and /sys the machine has, then NULL
void forget_machine(void);                                                 // before its file is read again
void read_line(char *line);                                                // of that file, which LAB_MACHINE names
struct node node_at(const char *path);                                     // ABSENT: a device file that the machine lacks
int refusal(struct node node);                                             // errno of open(2), or 0
void describe(struct node node, struct stat *to);                          // permissions and device number
int answer_ioctl(struct node node, unsigned long request, void *argument); // as ioctl(2)

#endif
