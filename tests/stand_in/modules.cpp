/* The part of the stand-in for libamdhip64 that compiles and runs kernels, hiprtc included, on the CPU.
 *
 * hiprtcCompileProgram compiles with g++ and tests/kernels/cpu.cpp (CPU_SOURCE) and gives an ELF file with the header
 * and metadata of a code object, behind which the library lies. It loads where its header names the ISA that
 * LC_STAND_IN_ISA says (gfx1030). LC_STAND_IN_SPILLS names a kernel whose metadata say that it spills;
 * LC_STAND_IN_LAUNCHES a file that gets a line for each launch: kernel, blocks, threads, device and stream.
 * In LD_PRELOAD it also shows LC_STAND_IN_KFD in place of the nodes of KFD's topology. */

#include "common.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>

#include <map>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) int

namespace {

enum { INVALID_VALUE = 1, NO_BINARY = 209, NOT_FOUND = 500, LAUNCH_FAILURE = 719 };
enum { RTC_COMPILATION = 6 };

thread_local int last_error;

int kept(int number) {
    if (number) last_error = number;
    return number;
}

#define MAY_FAIL_HERE do { int number = failing(__func__); if (number) return kept(number); } while (0)

const std::map<std::string, uint32_t> MACHINES = {
    {"gfx906", 0x2f}, {"gfx1010", 0x33}, {"gfx1011", 0x34}, {"gfx1012", 0x35},
    {"gfx1030", 0x36}, {"gfx1100", 0x41}, {"gfx1013", 0x42}, {"sm_90", 0x90},
};

std::string variable(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

bool machine_of(const std::string &isa, uint32_t *flags) {
    auto found = MACHINES.find(isa.substr(0, isa.find(':')));
    if (found == MACHINES.end()) return false;
    *flags = found->second;
    if (isa.find(":xnack-") != std::string::npos) *flags |= 0x200;
    return true;
}

struct Program {
    std::string source, log, code;
};

struct Kernel {
    int (*run)(void (*)(const void *), const int *, int, const void *, uint64_t);
    void (*entry)(const void *);
    std::string name;
};

struct Loaded {
    void *library;
    std::map<std::string, Kernel> kernels;
};

std::string content_of(const std::string &path) {
    std::string content;
    if (FILE *file = fopen(path.c_str(), "rb")) {
        char part[65536];
        for (size_t size; (size = fread(part, 1, sizeof part, file));) content.append(part, size);
        fclose(file);
    }
    return content;
}

void write_to(const std::string &path, const char *content, size_t size) {
    if (FILE *file = fopen(path.c_str(), "wb")) {
        fwrite(content, 1, size, file);
        fclose(file);
    }
}

int output_of(const std::string &command, std::string *output) {
    // The compiler is not to get this library.
    FILE *pipe = popen(("unset LD_PRELOAD; " + command).c_str(), "r");
    char part[4096];
    for (size_t size; (size = fread(part, 1, sizeof part, pipe));) output->append(part, size);
    return pclose(pipe);
}

std::string temporary_folder() {
    std::string path = variable("TMPDIR", "/tmp") + "/stand-in-XXXXXX";
    return mkdtemp(&path[0]) ? path : "";
}

std::vector<std::string> kernels_of(const std::string &library) {
    std::string listed;
    output_of("nm -D --defined-only " + library, &listed);
    std::vector<std::string> found;
    for (size_t at = 0, end; (end = listed.find('\n', at)) != std::string::npos; at = end + 1) {
        std::string line = listed.substr(at, end - at);
        size_t text = line.find(" T ");
        if (text == std::string::npos) continue;
        std::string name = line.substr(text + 3);
        if (name[0] != '_' && name.compare(0, 4, "cpu_")) found.push_back(name);
    }
    return found;
}

/* MessagePack. */
std::string text(const std::string &value) {
    std::string head = value.size() < 32 ? std::string(1, (char)(0xa0 | value.size()))
                                         : std::string("\xd9") + (char)value.size();
    return head + value;
}

std::string number(uint32_t value) {
    std::string found = "\xce";
    for (int shift = 24; shift >= 0; shift -= 8) found += (char)(value >> shift & 0xff);
    return found;
}

std::string metadata_of(const std::string &isa, const std::vector<std::string> &kernels) {
    std::string spilling = variable("LC_STAND_IN_SPILLS", "");
    std::string found = "\x82" + text("amdhsa.target") + text("amdgcn-amd-amdhsa--" + isa) + text("amdhsa.kernels");
    found += "\xdc";
    found += (char)(kernels.size() >> 8);
    found += (char)kernels.size();
    for (const std::string &name : kernels) {
        uint32_t spills = name == spilling ? 7 : 0;
        found += "\x88" + text(".name") + text(name) + text(".vgpr_count") + number(64) + text(".sgpr_count") +
                 number(32) + text(".vgpr_spill_count") + number(spills) + text(".sgpr_spill_count") + number(0) +
                 text(".private_segment_fixed_size") + number(4 * spills) + text(".group_segment_fixed_size") +
                 number(0) + text(".kernarg_segment_size") + number(16);
    }
    return found;
}

template <typename Number>
void put(std::string *target, size_t at, Number value) {
    memcpy(&(*target)[at], &value, sizeof value);
}

std::string code_object(uint32_t flags, std::string note, const std::string &library) {
    const size_t segment = 64, notes = segment + 56;
    std::string head(notes, '\0');
    const char magic[] = "\x7f" "ELF\x02\x01\x01\x40";
    memcpy(&head[0], magic, 8);
    std::string section(12, '\0');
    put<uint32_t>(&section, 0, 7);
    put<uint32_t>(&section, 4, (uint32_t)note.size());
    put<uint32_t>(&section, 8, 32);
    note.resize((note.size() + 3) / 4 * 4);
    section += std::string("AMDGPU\0\0", 8) + note;
    put<uint16_t>(&head, 16, 3);
    put<uint16_t>(&head, 18, 224);
    put<uint64_t>(&head, 24, notes + section.size());
    put<uint64_t>(&head, 32, segment);
    put<uint32_t>(&head, 48, flags);
    put<uint16_t>(&head, 54, 56);
    put<uint16_t>(&head, 56, 1);
    put<uint32_t>(&head, segment, 4);
    put<uint64_t>(&head, segment + 8, notes);
    put<uint64_t>(&head, segment + 32, section.size());
    return head + section + library;
}

}  // namespace

/* hiprtc */

extern "C" const char *hiprtcGetErrorString(int error) {
    return error == RTC_COMPILATION ? "HIPRTC_ERROR_COMPILATION" : "HIPRTC_ERROR_INTERNAL_ERROR";
}

API hiprtcVersion(int *major, int *minor) { MAY_FAIL; *major = 9; *minor = 0; return 0; }

API hiprtcCreateProgram(void **program, const char *source, const char *, int, const char **, const char **) {
    MAY_FAIL;
    *program = new Program{source, "", ""};
    return 0;
}

API hiprtcDestroyProgram(void **program) { MAY_FAIL; delete (Program *)*program; *program = NULL; return 0; }

API hiprtcCompileProgram(void *handle, int count, const char **options) {
    MAY_FAIL;
    Program *program = (Program *)handle;
    std::string isa;
    uint32_t flags = 0;
    for (int i = 0; i < count; i++) {
        std::string option = options[i];
        if (option.compare(0, 19, "--gpu-architecture=") == 0) isa = option.substr(19);
        else if (option.compare(0, 5, "-std=") && option.compare(0, 2, "-O") && option.compare(0, 2, "-m") &&
                 option != "--fmad=true") {
            program->log = "error: unsupported option '" + option + "'\n";
            return RTC_COMPILATION;
        }
    }
    if (!machine_of(isa, &flags)) {
        program->log = "error: unknown target '" + isa + "'\n";
        return RTC_COMPILATION;
    }
    std::string folder = temporary_folder(), source = folder + "/kernels.cpp", library = folder + "/kernels.so";
    write_to(source, program->source.data(), program->source.size());
    int failed = output_of(
        "g++ -std=c++17 -O1 -w -shared -fPIC -DON_CPU '" + source + "' '" CPU_SOURCE "' -o '" + library + "' 2>&1",
        &program->log);
    if (!failed) program->code = code_object(flags, metadata_of(isa, kernels_of(library)), content_of(library));
    unlink(source.c_str());
    unlink(library.c_str());
    rmdir(folder.c_str());
    return failed ? RTC_COMPILATION : 0;
}

API hiprtcGetProgramLogSize(void *program, size_t *size) { MAY_FAIL; *size = ((Program *)program)->log.size() + 1; return 0; }

API hiprtcGetProgramLog(void *program, char *log) {
    MAY_FAIL;
    strcpy(log, ((Program *)program)->log.c_str());
    return 0;
}

API hiprtcGetCodeSize(void *program, size_t *size) { MAY_FAIL; *size = ((Program *)program)->code.size(); return 0; }

API hiprtcGetCode(void *program, char *code) {
    MAY_FAIL;
    const std::string &content = ((Program *)program)->code;
    memcpy(code, content.data(), content.size());
    return 0;
}

/* Modules */

API hipGetLastError(void) { int number = last_error; last_error = 0; return number; }

API hipModuleLoadData(void **module, const char *code) {
    MAY_FAIL_HERE;
    uint32_t flags, wanted = 0;
    uint64_t start, size;
    machine_of(variable("LC_STAND_IN_ISA", "gfx1030"), &wanted);
    memcpy(&flags, code + 48, 4);
    if (memcmp(code, "\x7f" "ELF", 4)) return kept(INVALID_VALUE);
    if ((flags & 0xff) != (wanted & 0xff)) return kept(NO_BINARY);
    memcpy(&start, code + 24, 8);
    // The size of the library: to the end of its section headers, which g++ puts last.
    const char *library = code + start;
    uint16_t entry, entries;
    memcpy(&size, library + 40, 8);
    memcpy(&entry, library + 58, 2);
    memcpy(&entries, library + 60, 2);
    size += (uint64_t)entry * entries;
    std::string folder = temporary_folder(), path = folder + "/kernels.so";
    write_to(path, library, size);
    void *opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!opened) fprintf(stderr, "%s\n", dlerror());
    unlink(path.c_str());
    rmdir(folder.c_str());
    if (!opened) return kept(INVALID_VALUE);
    *module = new Loaded{opened, {}};
    return 0;
}

API hipModuleUnload(void *module) {
    MAY_FAIL_HERE;
    dlclose(((Loaded *)module)->library);
    delete (Loaded *)module;
    return 0;
}

API hipModuleGetFunction(void **function, void *module, const char *name) {
    MAY_FAIL_HERE;
    Loaded *loaded = (Loaded *)module;
    Kernel kernel;
    *(void **)&kernel.run = dlsym(loaded->library, "cpu_launch");
    *(void **)&kernel.entry = dlsym(loaded->library, name);
    kernel.name = name;
    if (!kernel.entry) return kept(NOT_FOUND);
    *function = &(loaded->kernels[name] = kernel);
    return 0;
}

extern "C" int hipGetDevice(int *device);

API hipModuleLaunchKernel(
    void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y, unsigned threads_z,
    unsigned shared, void *stream, void **parameters, void **extra) {
    MAY_FAIL_HERE;
    const Kernel *kernel = (const Kernel *)function;
    if (!x || !y || !z || !threads || threads_y != 1 || threads_z != 1 || shared || extra) return kept(INVALID_VALUE);
    std::string noted = variable("LC_STAND_IN_LAUNCHES", "");
    if (!noted.empty()) {
        int device = 0;
        hipGetDevice(&device);
        if (FILE *file = fopen(noted.c_str(), "a")) {
            fprintf(file, "%s %u,%u,%u %u %d %zu\n", kernel->name.c_str(), x, y, z, threads, device, (size_t)stream);
            fclose(file);
        }
    }
    const int grid[] = {(int)x, (int)y, (int)z};
    return kept(kernel->run(kernel->entry, grid, (int)threads, parameters[0], 1) ? LAUNCH_FAILURE : 0);
}

API hipStreamSynchronize(void *) { MAY_FAIL_HERE; return 0; }

/* KFD's topology */

static std::string shown(const char *path) {
    static const std::string nodes = "/sys/class/kfd/kfd/topology/nodes";
    const char *folder = getenv("LC_STAND_IN_KFD");
    return folder && !strncmp(path, nodes.c_str(), nodes.size()) ? folder + std::string(path + nodes.size()) : path;
}

extern "C" DIR *opendir(const char *path) {
    static auto real = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
    return real(shown(path).c_str());
}

extern "C" int open64(const char *path, int flags, ...) {
    static auto real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return real(shown(path).c_str(), flags, mode);
}
