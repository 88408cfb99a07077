/* Maps a library of kernels, calls the kernels that it is told to on arrays of its own, and gives the arrays back.
 *
 * It needs no libc, so that one small file runs natively, under qemu and under valgrind. `machine.py` compiles it and
 * says what is read and written here. An array ends where a page ends that may not be touched, and the bytes before it
 * are compared after the call: a kernel that leaves its arrays ends the process. Arrays that are called secret are
 * "undefined" for valgrind's memcheck, which then reports each branch and each address that depends on them.
 */
typedef unsigned long word;
typedef unsigned char octet;
enum { MOST = 16, PAGE = 4096, NUMBER = 0, SECRET = 2, FILLER = 0xA5, LEFT_ITS_ARRAY = 3, BROKEN_PIPE = 4 };

#if defined(__x86_64__)
enum { READ = 0, WRITE = 1, MAP = 9, PROTECT = 10, UNMAP = 11, EXIT = 60 };
static long ask(long n, word a, word b, word c, word d, word e, word f) {
  register word r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "+a"(n) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return n;
}
__asm__(".globl _start\n_start: xor %ebp, %ebp\n and $-16, %rsp\n call run\n");
/* valgrind.h: a sequence that does nothing, and a request in an array. 'M', 'C' + 1: undefined; + 2: defined. */
static void tell_memcheck(word request, octet *start, word size) {
  volatile word asked[6] = {0x4D430000 + request, (word)start, size, 0, 0, 0};
  word result = 0;
  __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
                   : "+d"(result) : "a"(asked) : "cc", "memory");
}
#elif defined(__aarch64__)
enum { READ = 63, WRITE = 64, MAP = 222, PROTECT = 226, UNMAP = 215, EXIT = 93 };
static long ask(long n, word a, word b, word c, word d, word e, word f) {
  register word x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  register word x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
__asm__(".globl _start\n_start: mov x29, xzr\n bl run\n");
static void tell_memcheck(word request, octet *start, word size) {}
#endif

static void leave(int status) { ask(EXIT, status, 0, 0, 0, 0, 0); }

static void transfer(int call, octet *at, word size) {
  while (size) {
    long done = ask(call, call == WRITE, (word)at, size, 0, 0, 0);
    if (done <= 0) leave(BROKEN_PIPE);
    at += done, size -= done;
  }
}

static word read_word(void) {
  word value;
  transfer(READ, (octet *)&value, 8);
  return value;
}

static octet *map(word address, word size) {
  long found = ask(MAP, address, size, 3, 0x22 | (address ? 0x10 : 0), -1, 0); /* private, anonymous; fixed */
  if (found < 0 && found > -PAGE) leave(BROKEN_PIPE);
  return (octet *)found;
}

typedef void (*kernel)(word, word, word, word, word, word, word, word, word, word, word, word, word, word, word, word);

void run(void) {
  word base = read_word(), size = read_word();
  octet *image = map(base, size);
  transfer(READ, image, size);
  ask(PROTECT, base, size, 5, 0, 0, 0); /* to be read and executed: kernels have no data that is written */
  for (;;) {
    word function = read_word(), count = read_word(), value[MOST] = {0}, kind[MOST], length[MOST] = {0};
    octet *room[MOST];
    if (count > MOST) leave(0);
    for (word i = 0; i < count; i++) kind[i] = read_word(), value[i] = read_word();
    for (word i = 0; i < count; i++) {
      if (kind[i] == NUMBER) continue;
      word pages = (value[i] + PAGE - 1) / PAGE * PAGE;
      room[i] = map(0, pages + PAGE), length[i] = value[i];
      for (octet *at = room[i]; at < room[i] + pages - length[i]; at++) *at = FILLER;
      ask(PROTECT, (word)room[i] + pages, PAGE, 0, 0, 0, 0);
      value[i] = (word)room[i] + pages - length[i];
      transfer(READ, (octet *)value[i], length[i]);
      if (kind[i] == SECRET) tell_memcheck(1, (octet *)value[i], length[i]);
    }
    ((kernel)(base + function))(value[0], value[1], value[2], value[3], value[4], value[5], value[6], value[7],
                                value[8], value[9], value[10], value[11], value[12], value[13], value[14], value[15]);
    for (word i = 0; i < count; i++) {
      if (kind[i] == NUMBER) continue;
      tell_memcheck(2, (octet *)value[i], length[i]);
      for (octet *at = room[i]; at < (octet *)value[i]; at++)
        if (*at != FILLER) leave(LEFT_ITS_ARRAY);
      transfer(WRITE, (octet *)value[i], length[i]);
      ask(UNMAP, (word)room[i], (length[i] + PAGE - 1) / PAGE * PAGE + PAGE, 0, 0, 0, 0);
    }
  }
}
