/* A clock that a chaos run hands to a program written in C: loaded before libc, it
   answers for the functions that tell the time of day, ahead or behind by what the
   first eight bytes of a file say. The run changes them while the program runs.
   Monotonic clocks stay: setting a machine's clock does not move those either. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead; /* nanoseconds; NULL before it is known */

__attribute__((constructor)) static void begin(void) {
  const char *name = getenv("QUOTA_CHAOS_CLOCK");
  int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *page = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
  if (page != MAP_FAILED) ahead = page;
  close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *t) {
  int failed = syscall(SYS_clock_gettime, clock, t);
  if (failed || !ahead || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
  int64_t by = *ahead, nanos = t->tv_nsec + by % 1000000000;
  t->tv_sec += by / 1000000000;
  if (nanos < 0) nanos += 1000000000, t->tv_sec--;
  if (nanos >= 1000000000) nanos -= 1000000000, t->tv_sec++;
  t->tv_nsec = nanos;
  return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
  struct timespec now;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  t->tv_sec = now.tv_sec;
  t->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *to) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}
