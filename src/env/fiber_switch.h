// SPDX-License-Identifier: MPL-2.0
/* The stack switch below fiber.c.
 *
 * A suspended context is one stack pointer; what the calling convention makes the callee keep is on
 * the stack below it. Everything else is dead across the call, so a switch is a dozen instructions
 * and no system call (ucontext, the fallback, makes two for the signal mask). The floating-point
 * control words are left out: nobody here changes them.
 *
 * Under the sanitizers each switch is announced, or they would take the new stack for an overflow
 * (ASan) or for a race of the thread with itself (TSan). */
#ifndef HOLDFAST_ENV_FIBER_SWITCH_H
#define HOLDFAST_ENV_FIBER_SWITCH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FIBER_TSAN 1
#endif
#endif

#ifdef FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(FIBER_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define FIBER_UCONTEXT 1
#endif

#ifdef FIBER_UCONTEXT

#include <ucontext.h>

struct fiber_context {
    ucontext_t ucontext;
};

static inline void fiber_context_init(struct fiber_context *context, void *stack, size_t bytes,
                                      void (*entry)(void)) {
    (void)getcontext(&context->ucontext);
    context->ucontext.uc_stack.ss_sp = stack;
    context->ucontext.uc_stack.ss_size = bytes;
    context->ucontext.uc_link = NULL;
    makecontext(&context->ucontext, entry, 0);
}

static inline void fiber_context_switch(struct fiber_context *from, struct fiber_context *to) {
    (void)swapcontext(&from->ucontext, &to->ucontext);
}

#else

struct fiber_context {
    void *stack_pointer;
};

/* Pushes what must survive, stores the stack pointer in *from, takes to, pops, returns there. */
void holdfast_fiber_switch(void **from, void *to);

#if defined(__x86_64__)

/* System V ABI, AMD64: rbx, rbp, r12-r15 are the callee's to keep. */
__asm__(".text\n"
        ".p2align 4\n"
        ".globl holdfast_fiber_switch\n"
        ".hidden holdfast_fiber_switch\n"
        ".type holdfast_fiber_switch, @function\n"
        "holdfast_fiber_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size holdfast_fiber_switch, .-holdfast_fiber_switch\n");

enum { FIBER_FRAME_WORDS = 8, FIBER_FRAME_ENTRY = 6 };

#elif defined(__aarch64__)

/* AAPCS64: x19-x28, the frame pointer x29, the link register x30 and d8-d15. */
__asm__(".text\n"
        ".p2align 4\n"
        ".globl holdfast_fiber_switch\n"
        ".hidden holdfast_fiber_switch\n"
        ".type holdfast_fiber_switch, %function\n"
        "holdfast_fiber_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size holdfast_fiber_switch, .-holdfast_fiber_switch\n");

enum { FIBER_FRAME_WORDS = 20, FIBER_FRAME_ENTRY = 11 };

#endif

/* Builds the frame that the first switch pops. The end of the stack is aligned to 16; on x86-64 the
 * return into `entry` leaves the stack as a call would have: 8 below a multiple of 16, with a null
 * return address, where a debugger's walk ends. */
static inline void fiber_context_init(struct fiber_context *context, void *stack, size_t bytes,
                                      void (*entry)(void)) {
    uintptr_t end = ((uintptr_t)stack + bytes) & ~(uintptr_t)15;
    uintptr_t *frame = (uintptr_t *)end - FIBER_FRAME_WORDS;
    memset(frame, 0, FIBER_FRAME_WORDS * sizeof(*frame));
    frame[FIBER_FRAME_ENTRY] = (uintptr_t)entry;
    context->stack_pointer = frame;
}

static inline void fiber_context_switch(struct fiber_context *from, struct fiber_context *to) {
    holdfast_fiber_switch(&from->stack_pointer, to->stack_pointer);
}

#endif
#endif
