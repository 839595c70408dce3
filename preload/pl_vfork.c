/*
 * pl_vfork.c - vfork returns twice on the same stack, so whoever wraps it must not be on
 * that stack when it is called: prepare, then jump to libc's with our caller's return
 * address still in place. pl_before_vfork returns the address of libc's vfork.
 *
 * In assembly, because a C function could keep a frame.
 */
#if defined(__x86_64__)
#define BODY                      \
    "endbr64\n"                   \
    "sub $8, %rsp\n"              \
    ".cfi_adjust_cfa_offset 8\n"  \
    "call pl_before_vfork\n"      \
    "add $8, %rsp\n"              \
    ".cfi_adjust_cfa_offset -8\n" \
    "jmp *%rax\n"
#elif defined(__aarch64__)
#define BODY                       \
    "hint #34\n"                   \
    "stp x29, x30, [sp, #-16]!\n"  \
    ".cfi_adjust_cfa_offset 16\n"  \
    ".cfi_rel_offset x29, 0\n"     \
    ".cfi_rel_offset x30, 8\n"     \
    "bl pl_before_vfork\n"         \
    "mov x16, x0\n"                \
    "ldp x29, x30, [sp], #16\n"    \
    ".cfi_adjust_cfa_offset -16\n" \
    ".cfi_restore x29\n"           \
    ".cfi_restore x30\n"           \
    "br x16\n"
#else
#error "railsock: vfork is not written for this architecture"
#endif

__asm__(".text\n"
        ".globl vfork\n"
        ".type vfork, %function\n"
        ".globl __vfork\n"
        ".type __vfork, %function\n"
        "vfork:\n"
        "__vfork:\n"
        ".cfi_startproc\n" BODY ".cfi_endproc\n"
        ".size vfork, . - vfork\n"
        ".size __vfork, . - __vfork\n");
