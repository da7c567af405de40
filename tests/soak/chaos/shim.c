/* Faults of the disk and the clock, below one folder: loaded into a server with LD_PRELOAD.

   A page of shared memory (`struct control`, also in shim.py) says what is to fail. Writes can be
   rejected (an errno, or no room for files to grow), slow, or the last thing that the process does;
   a sync can be slow, fail, or be that. What isn't synced can be lost: with `journal`, the bytes
   before each write are kept in a file per inode until a sync of that inode returns, so that a
   power cut can be played by writing them back. Segments of the log that are deleted are linked
   into `archive` before, for the model. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    int64_t clock_offset;      /* nanoseconds that the clock is ahead */
    int64_t write_delay;       /* microseconds, before each write and sync */
    int64_t sync_delay;
    int64_t room;              /* bytes that files may still grow by; negative: no limit */
    int64_t write_errno;       /* each write fails with it */
    int64_t sync_errno;        /* each sync fails with it */
    int64_t kill_before_write; /* the process kills itself in this write from now; half is written */
    int64_t kill_before_sync;
    int64_t kill_after_sync;
    int64_t journal;
    int64_t writes, syncs, failed; /* counted here */
    char folder[1024], undo[1024], archive[1024];
};

static struct control none = {.room = -1};
static struct control *volatile page = &none;
static pthread_mutex_t journal_lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* Attach this process to a control page; called by the starter in each fork. */
int chaos_attach(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return -1;
    void *found = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (found == MAP_FAILED) return -1;
    page = found;
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CONTROL");
    if (path) chaos_attach(path);
}

static int is_below(const char *path) {
    size_t length = strlen(page->folder);
    return length && !strncmp(path, page->folder, length);
}

static int is_ours(int fd, struct stat *found) {
    char name[64], path[PATH_MAX];
    if (!page->folder[0] || fstat(fd, found) || !S_ISREG(found->st_mode)) return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

static void sleep_us(int64_t us) {
    struct timespec left = {us / 1000000, us % 1000000 * 1000};
    while (us > 0 && syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {}
}

static int comes(int64_t *countdown) {
    return *countdown > 0 && __sync_sub_and_fetch(countdown, 1) == 0;
}

static void die(void) { syscall(SYS_kill, syscall(SYS_getpid), SIGKILL); for (;;) pause(); }

/* ---- what isn't synced */

struct undo { int64_t offset, length, size; };

static int open_undo(ino_t inode, int flags) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%lu", page->undo, (unsigned long)inode);
    return syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
}

static void forget(ino_t inode) {
    char path[PATH_MAX];
    if (!page->journal) return;
    snprintf(path, sizeof path, "%s/%lu", page->undo, (unsigned long)inode);
    syscall(SYS_unlink, path);
}

/* Keep the bytes that a write is about to replace. The lock is held. */
static void keep(int fd, const struct stat *before, int64_t offset, int64_t count) {
    int64_t old = before->st_size - offset;
    old = old < 0 ? 0 : old < count ? old : count;
    char *bytes = malloc(old ? old : 1);
    if (old) old = syscall(SYS_pread64, fd, bytes, old, offset);
    if (old < 0) old = 0;
    struct undo head = {offset, old, before->st_size};
    struct iovec parts[2] = {{&head, sizeof head}, {bytes, old}};
    int out = open_undo(before->st_ino, O_WRONLY | O_CREAT | O_APPEND);
    if (out >= 0) {
        syscall(SYS_writev, out, parts, 2);
        syscall(SYS_close, out);
    }
    free(bytes);
}

static int64_t journal_size(ino_t inode) {
    struct stat found;
    int fd = open_undo(inode, O_RDONLY);
    if (fd < 0) return 0;
    int64_t size = fstat(fd, &found) ? 0 : found.st_size;
    syscall(SYS_close, fd);
    return size;
}

/* A sync that began when the journal had this size has returned. The lock is held. */
static void synced(ino_t inode, int64_t size) {
    int fd = open_undo(inode, O_RDWR);
    if (fd < 0) return;
    struct stat found;
    if (!fstat(fd, &found) && found.st_size > size) {
        int64_t rest = found.st_size - size;
        char *bytes = malloc(rest);
        syscall(SYS_pread64, fd, bytes, rest, size);
        syscall(SYS_ftruncate, fd, 0);
        syscall(SYS_pwrite64, fd, bytes, rest, 0);
        free(bytes);
    } else {
        syscall(SYS_ftruncate, fd, 0);
    }
    syscall(SYS_close, fd);
}

/* ---- writing */

/* Return how many bytes may be written, or -1 with errno. */
static int64_t allowed(const struct stat *before, int64_t offset, int64_t count) {
    __sync_add_and_fetch(&page->writes, 1);
    sleep_us(page->write_delay);
    if (page->write_errno) {
        __sync_add_and_fetch(&page->failed, 1);
        errno = page->write_errno;
        return -1;
    }
    int64_t growth = offset + count - before->st_size;
    if (page->room < 0 || growth <= 0) return count;
    if (growth <= page->room) {
        __sync_sub_and_fetch(&page->room, growth);
        return count;
    }
    int64_t fits = count - growth + page->room;
    page->room = 0;
    if (fits > 0) return fits; /* a short write, as on a disk that becomes full in its middle */
    __sync_add_and_fetch(&page->failed, 1);
    errno = ENOSPC;
    return -1;
}

static ssize_t write_at(int fd, const void *bytes, size_t count, int64_t offset, int is_at) {
    struct stat before;
    if (!is_ours(fd, &before))
        return is_at ? syscall(SYS_pwrite64, fd, bytes, count, offset)
                     : syscall(SYS_write, fd, bytes, count);
    int flags = syscall(SYS_fcntl, fd, F_GETFL);
    int64_t where = is_at ? offset : syscall(SYS_lseek, fd, 0, SEEK_CUR);
    if (flags & O_APPEND) where = before.st_size;
    int64_t some = allowed(&before, where, count);
    if (some < 0) return -1;
    int dies = comes(&page->kill_before_write);
    if (dies) some = some / 2;
    pthread_mutex_lock(&journal_lock);
    if (page->journal) keep(fd, &before, where, some);
    ssize_t done = is_at ? syscall(SYS_pwrite64, fd, bytes, some, offset)
                         : syscall(SYS_write, fd, bytes, some);
    int error = errno;
    pthread_mutex_unlock(&journal_lock);
    if (dies) die();
    errno = error;
    return done;
}

ssize_t write(int fd, const void *bytes, size_t count) { return write_at(fd, bytes, count, 0, 0); }
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    return write_at(fd, bytes, count, at, 1);
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    return write_at(fd, bytes, count, at, 1);
}

/* Of several buffers the first is written: a short write, which every caller must go on from. */
static ssize_t write_first(int fd, const struct iovec *parts, int count, int64_t at, int is_at) {
    for (int i = 0; i < count; i++)
        if (parts[i].iov_len) {
            int64_t done = write_at(fd, parts[i].iov_base, parts[i].iov_len, at, is_at);
            return done;
        }
    return 0;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    struct stat before;
    if (!is_ours(fd, &before)) return syscall(SYS_writev, fd, parts, count);
    return write_first(fd, parts, count, 0, 0);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    return write_first(fd, parts, count, at, 1);
}

/* Bytes of files are free again. */
static void credit(int64_t freed) {
    if (page->room >= 0 && freed > 0) __sync_add_and_fetch(&page->room, freed);
}

int ftruncate(int fd, off_t length) {
    struct stat before;
    if (is_ours(fd, &before)) {
        credit(before.st_size - length);
        if (page->journal) {
            int64_t gone = before.st_size - length;
            pthread_mutex_lock(&journal_lock);
            keep(fd, &before, length, gone > 0 ? gone : 0);
            pthread_mutex_unlock(&journal_lock);
        }
    }
    return syscall(SYS_ftruncate, fd, length);
}
int ftruncate64(int fd, off64_t length) { return ftruncate(fd, length); }

int truncate(const char *path, off_t length) {
    struct stat before;
    if (is_below(path) && !stat(path, &before)) credit(before.st_size - length);
    return syscall(SYS_truncate, path, length);
}
int truncate64(const char *path, off64_t length) { return truncate(path, length); }

int posix_fallocate(int fd, off_t offset, off_t length) {
    struct stat before;
    if (is_ours(fd, &before)) {
        int64_t growth = offset + length - before.st_size;
        if (page->write_errno) return page->write_errno;
        if (page->room >= 0 && growth > page->room) {
            __sync_add_and_fetch(&page->failed, 1);
            return ENOSPC;
        }
        if (page->room >= 0 && growth > 0) __sync_sub_and_fetch(&page->room, growth);
    }
    return syscall(SYS_fallocate, fd, 0, offset, length) ? errno : 0;
}
int posix_fallocate64(int fd, off64_t offset, off64_t length) {
    return posix_fallocate(fd, offset, length);
}

static int sync_with(int fd, long number) {
    struct stat found;
    if (!is_ours(fd, &found)) return syscall(number, fd);
    __sync_add_and_fetch(&page->syncs, 1);
    sleep_us(page->sync_delay);
    if (comes(&page->kill_before_sync)) die();
    if (page->sync_errno) {
        __sync_add_and_fetch(&page->failed, 1);
        errno = page->sync_errno;
        return -1;
    }
    pthread_mutex_lock(&journal_lock);
    int64_t size = page->journal ? journal_size(found.st_ino) : 0;
    pthread_mutex_unlock(&journal_lock);
    int done = syscall(number, fd);
    if (!done && page->journal) {
        pthread_mutex_lock(&journal_lock);
        synced(found.st_ino, size);
        pthread_mutex_unlock(&journal_lock);
    }
    if (comes(&page->kill_after_sync)) die();
    return done;
}

int fsync(int fd) { return sync_with(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_with(fd, SYS_fdatasync); }

/* ---- names */

static void before_name_goes(const char *path) {
    struct stat found;
    if (!is_below(path) || lstat(path, &found) || !S_ISREG(found.st_mode)) return;
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    char kept[PATH_MAX];
    if (page->archive[0] && !strncmp(name, "log-", 4)) {
        const char *end = strstr(name, ".db");
        int is_segment = end && !end[3];
        if (end && !strcmp(end, ".db-wal")) { /* of a segment that has gone before it */
            char whole[PATH_MAX];
            snprintf(whole, sizeof whole, "%s/%.*s", page->archive, (int)(end + 3 - name), name);
            is_segment = !access(whole, F_OK);
        }
        snprintf(kept, sizeof kept, "%s/%s", page->archive, name);
        if (is_segment) syscall(SYS_link, path, kept);
    }
    forget(found.st_ino);
    credit(found.st_size);
}

int unlink(const char *path) {
    before_name_goes(path);
    return syscall(SYS_unlink, path);
}
int unlinkat(int folder, const char *path, int flags) {
    if (folder != AT_FDCWD && path[0] != '/') {
        char name[64], where[PATH_MAX], whole[2 * PATH_MAX];
        snprintf(name, sizeof name, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(name, where, sizeof where - 1);
        if (length > 0) {
            where[length] = 0;
            snprintf(whole, sizeof whole, "%s/%s", where, path);
            before_name_goes(whole);
        }
    }
    return syscall(SYS_unlinkat, folder, path, flags);
}
int rename(const char *from, const char *to) {
    if (is_below(to)) {
        struct stat found;
        if (page->write_errno) {
            errno = page->write_errno;
            return -1;
        }
        if (!lstat(to, &found) && S_ISREG(found.st_mode)) forget(found.st_ino);
    }
    return syscall(SYS_rename, from, to);
}
int mkdir(const char *path, mode_t mode) {
    if (is_below(path) && (page->write_errno || page->room == 0)) {
        errno = page->write_errno ? page->write_errno : ENOSPC;
        return -1;
    }
    return syscall(SYS_mkdir, path, mode);
}

/* ---- the clock */

static void shift(int64_t *seconds, int64_t *nanoseconds) {
    int64_t now = *seconds * 1000000000 + *nanoseconds + page->clock_offset;
    *seconds = now / 1000000000;
    *nanoseconds = now % 1000000000;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    REAL(clock_gettime);
    int done = real(which, now);
    if (!done && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE) && page->clock_offset) {
        int64_t seconds = now->tv_sec, rest = now->tv_nsec;
        shift(&seconds, &rest);
        now->tv_sec = seconds;
        now->tv_nsec = rest;
    }
    return done;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    (void)zone;
    int done = clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return done;
}
time_t time(time_t *where) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (where) *where = found.tv_sec;
    return found.tv_sec;
}
