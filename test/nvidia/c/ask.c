// ask answers a list of questions with libcuda: each line is CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, "-" for one that is
// not set, else "=" and the value with %XX for what could be taken for a separator. It prints what cuInit returns, and the
// devices' UUIDs as 32 hexadecimal digits. Each question has a process of its own, as the variables are read once. As
// "ask own" it prints what it is shown itself.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void set(const char *name, char *value)
{
    char *to = value, *from = value;
    unsetenv(name);
    if (*from++ != '=')
        return;
    for (unsigned byte; *from != '\0'; *to++ = (char)byte)
        if (*from == '%' && sscanf(from, "%%%2x", &byte) == 1)
            from += 3;
        else
            byte = (unsigned char)*from++;
    *to = '\0';
    setenv(name, value, 1);
}

static int answer(void *library)
{
    int (*init)(unsigned) = dlsym(library, "cuInit"), (*get_count)(int *) = dlsym(library, "cuDeviceGetCount");
    int (*get_uuid)(unsigned char *, int) = dlsym(library, "cuDeviceGetUuid_v2"); // of a MIG device its own
    int count = 0, code = init(0);
    if (code == 0)
        get_count(&count);
    printf("%d", code);
    for (int i = 0; i < count; i++) {
        unsigned char uuid[16] = {0};
        get_uuid(uuid, i);
        printf(" ");
        for (int k = 0; k < 16; k++)
            printf("%02x", uuid[k]);
    }
    printf("\n");
    return fflush(stdout);
}

int main(int count, char **arguments)
{
    char *line = NULL;
    size_t size = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW); // once: it reads the variables in cuInit
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    if (count == 2 && strcmp(arguments[1], "own") == 0) {
        alarm(20);
        return answer(library);
    }
    for (ssize_t n; (n = getline(&line, &size, stdin)) > 0;) {
        line[strcspn(line, "\n")] = '\0';
        char *order = strchr(line, ' ');
        if (order == NULL)
            return 2;
        *order++ = '\0';
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            set("CUDA_VISIBLE_DEVICES", line);
            set("CUDA_DEVICE_ORDER", order);
            _exit(answer(library));
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "cannot get an answer to %s %s: status %x\n", line, order, status);
            return 1;
        }
    }
    return 0;
}
