// SPDX-License-Identifier: MPL-2.0
/* LD_PRELOAD for Debian's user-mode-linux 6.1 on processors whose register image (XSAVE) is larger
 * than the 2,696 bytes that it knows: Linux takes only a whole image from PTRACE_SETREGSET, so a
 * short one is continued with what the process has. */
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { IMAGE_BYTES = 32768 };

long ptrace(enum __ptrace_request request, ...) {
    static char image[IMAGE_BYTES] __attribute__((aligned(64)));
    static size_t image_bytes;
    va_list arguments;
    va_start(arguments, request);
    long pid = va_arg(arguments, int);
    long address = va_arg(arguments, long);
    long data = va_arg(arguments, long);
    va_end(arguments);
    struct iovec full;
    if (request == PTRACE_SETREGSET && address == NT_X86_XSTATE) {
        const struct iovec *given = (const struct iovec *)data;
        if (image_bytes == 0) {
            full = (struct iovec){image, IMAGE_BYTES};
            if (syscall(SYS_ptrace, (long)PTRACE_GETREGSET, pid, address, &full) == 0) {
                image_bytes = full.iov_len;
            }
            memset(image, 0, sizeof(image));
        }
        if (image_bytes > given->iov_len) {
            memcpy(image, given->iov_base, given->iov_len);
            full = (struct iovec){image, image_bytes};
            data = (long)&full;
        }
    }
    if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
        /* The system call returns the word by reference, the library's function as its result. */
        long word = 0;
        if (syscall(SYS_ptrace, (long)request, pid, address, &word) < 0) {
            return -1;
        }
        errno = 0;
        return word;
    }
    return syscall(SYS_ptrace, (long)request, pid, address, data);
}
