// nvidia-cuda-mps-control: the control daemon of NVIDIA's Multi-Process Service over a folder, as far as start, lists and
// end go. With -d it becomes a daemon, which is its own server too; without, it reads commands from its standard input.
// Clients put themselves into clients.d of the pipe directory (job.c). The daemon ends when that directory is gone.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char pid_file[4096], clients[4096];

static void leave(int signal)
{
    (void)signal;
    unlink(pid_file);
    _exit(0);
}

static int running(void)
{
    int pid = 0;
    FILE *f = fopen(pid_file, "r");
    if (f == NULL)
        return 0;
    if (fscanf(f, "%d", &pid) != 1 || kill(pid, 0) != 0)
        pid = 0;
    fclose(f);
    return pid;
}

static int serve(void)
{
    if (running()) {
        printf("An instance of this daemon is already running\n");
        return 1;
    }
    mkdir(clients, 0755);
    pid_t child = fork();
    if (child != 0)
        return child < 0;
    setsid();
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    signal(SIGTERM, leave);
    FILE *f = fopen(pid_file, "w");
    if (f == NULL)
        return 1;
    fprintf(f, "%d\n", (int)getpid());
    fclose(f);
    while (access(clients, F_OK) == 0)
        usleep(100000);
    leave(0);
    return 0;
}

static void list_clients(void)
{
    DIR *d = opendir(clients);
    if (d == NULL)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        int pid = atoi(e->d_name);
        if (pid > 0 && kill(pid, 0) == 0)
            printf("%d\n", pid);
    }
    closedir(d);
}

static int command(const char *line, int daemon_pid)
{
    if (strcmp(line, "get_server_list") == 0)
        printf("%d\n", daemon_pid);
    else if (strncmp(line, "get_client_list ", 16) == 0)
        list_clients();
    else if (strcmp(line, "quit") == 0) {
        kill(daemon_pid, SIGTERM);
        while (access(pid_file, F_OK) == 0)
            usleep(10000);
    } else
        printf("Unknown command '%s'\n", line);
    return 0;
}

int main(int argc, char **argv)
{
    const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
    if (pipe == NULL || *pipe == 0)
        pipe = "/tmp/nvidia-mps";
    snprintf(pid_file, sizeof pid_file, "%s/nvidia-cuda-mps-control.pid", pipe);
    snprintf(clients, sizeof clients, "%s/clients.d", pipe);
    if (argc > 1)
        return strcmp(argv[1], "-d") == 0 ? serve() : 2;
    int daemon_pid = running();
    if (!daemon_pid) {
        printf("Cannot find MPS control daemon process\n");
        return 1;
    }
    char line[256];
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = 0;
        command(line, daemon_pid);
    }
    return 0;
}
