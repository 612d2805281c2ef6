// Opens a SYCL device, compiles kernels for it and launches them: a plain C interface for ctypes.
//
// Every function returns null, or the text of an error, which is valid until the thread's next call.

#include <sycl/detail/core.hpp>
#include <sycl/ext/oneapi/experimental/raw_kernel_arg.hpp>
#include <sycl/kernel_bundle.hpp>
#include <sycl/properties/queue_properties.hpp>
#include <sycl/usm.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace experimental = sycl::ext::oneapi::experimental;

namespace {

using Bundle = sycl::kernel_bundle<sycl::bundle_state::executable>;

std::unique_ptr<sycl::queue> queue;
bool in_host_memory = false;
thread_local std::string error_text;

template <typename Work> const char* guarded(Work&& work) {
    try {
        work();
        return nullptr;
    } catch (const std::exception& error) {
        error_text = error.what();
    } catch (...) {
        error_text = "unknown error";
    }
    return error_text.c_str();
}

void copy_text(char (&target)[256], const std::string& text) {
    std::strncpy(target, text.c_str(), sizeof target - 1);
}

}  // namespace

extern "C" {

struct Facts {
    char name[256];
    char driver[256];
    int32_t is_processor;
    int32_t in_host_memory;
    int32_t doubles;
    int32_t halves;
    uint64_t shared_bytes;
    uint64_t group_threads;
    uint64_t group[3];
};

enum Kind : int32_t { SCALAR = 0, READ = 1, WRITTEN = 2 };

struct Argument {
    void* address;  // of the scalar's value, or of the tensor's memory
    uint64_t bytes;
    int32_t kind;
};

// `driver` is an OpenCL driver that is used unless the user named one, and `builds` a folder for compiled kernels.
const char* kforge_open(const char* driver, const char* builds, Facts* facts) {
    return guarded([&] {
        if (*driver) setenv("OCL_ICD_FILENAMES", driver, 0);
        setenv("SYCL_CACHE_PERSISTENT", "1", 0);
        setenv("SYCL_CACHE_DIR", builds, 0);
        const sycl::device device{sycl::default_selector_v};
        in_host_memory = device.has(sycl::aspect::usm_system_allocations);
        std::memset(facts, 0, sizeof *facts);
        copy_text(facts->name, device.get_info<sycl::info::device::name>());
        copy_text(facts->driver, device.get_platform().get_info<sycl::info::platform::name>() + " " +
                                     device.get_info<sycl::info::device::driver_version>());
        facts->is_processor = device.is_cpu();
        facts->in_host_memory = in_host_memory;
        facts->doubles = device.has(sycl::aspect::fp64);
        facts->halves = device.has(sycl::aspect::fp16);
        facts->shared_bytes = device.get_info<sycl::info::device::local_mem_size>();
        facts->group_threads = device.get_info<sycl::info::device::max_work_group_size>();
        const auto sizes = device.get_info<sycl::info::device::max_work_item_sizes<3>>();
        // SYCL's last dimension is the first one of a launch
        for (int i = 0; i < 3; ++i) facts->group[i] = sizes[2 - i];
        queue = std::make_unique<sycl::queue>(
            device, sycl::property_list{sycl::property::queue::in_order(), sycl::property::queue::enable_profiling()});
    });
}

// `options` has one option a line. The error of a source that does not compile is the compiler's log.
const char* kforge_build(const char* source, const char* options, void** program) {
    std::string log;
    const char* error = guarded([&] {
        std::vector<std::string> flags;
        for (const char* start = options; *start;) {
            const char* end = std::strchr(start, '\n');
            flags.emplace_back(start, end ? end - start : std::strlen(start));
            start = end ? end + 1 : start + std::strlen(start);
        }
        auto text = experimental::create_kernel_bundle_from_source(
            queue->get_context(), experimental::source_language::sycl, std::string(source));
        *program = new Bundle(experimental::build(
            text, experimental::properties{experimental::build_options{flags}, experimental::save_log{&log}}));
    });
    if (error && log.find("error:") != std::string::npos) error_text = log;
    return error ? error_text.c_str() : nullptr;
}

// Sets `kernel` to null if the program has no kernel of this name: the preprocessor removed it.
const char* kforge_kernel(void* program, const char* name, void** kernel, uint64_t* most_threads) {
    return guarded([&] {
        auto& bundle = *static_cast<Bundle*>(program);
        *kernel = nullptr;
        if (!bundle.ext_oneapi_has_kernel(name)) return;
        auto found = std::make_unique<sycl::kernel>(bundle.ext_oneapi_get_kernel(name));
        *most_threads = found->get_info<sycl::info::kernel_device_specific::work_group_size>(queue->get_device());
        *kernel = found.release();
    });
}

// `threads` are multiples of `group`. `times` gets start and end in nanoseconds of the device's clock.
const char* kforge_launch(void* kernel, const Argument* arguments, uint64_t count, const uint64_t* threads,
                          const uint64_t* group, uint64_t* times) {
    return guarded([&] {
        struct Copy {
            void* device;
            uint64_t bytes;
            bool written;
        };
        std::map<void*, Copy> copies;
        struct Freed {
            std::map<void*, Copy>& copies;
            ~Freed() {
                for (auto& one : copies) sycl::free(one.second.device, *queue);
            }
        } freed{copies};
        for (uint64_t i = 0; i < count && !in_host_memory; ++i) {
            const Argument& one = arguments[i];
            if (one.kind == SCALAR || !one.bytes) continue;
            auto place = copies.find(one.address);
            if (place == copies.end()) {
                void* memory = sycl::malloc_device(one.bytes, *queue);
                if (!memory) throw std::bad_alloc();
                place = copies.emplace(one.address, Copy{memory, one.bytes, false}).first;
                queue->memcpy(memory, one.address, one.bytes);
            }
            place->second.written |= one.kind == WRITTEN;
        }
        auto event = queue->submit([&](sycl::handler& handler) {
            for (uint64_t i = 0; i < count; ++i) {
                const Argument& one = arguments[i];
                if (one.kind == SCALAR) {
                    handler.set_arg(i, experimental::raw_kernel_arg(one.address, one.bytes));
                } else {
                    auto place = copies.find(one.address);
                    void* memory = place == copies.end() ? one.address : place->second.device;
                    handler.set_arg(i, memory);
                }
            }
            handler.parallel_for(
                sycl::nd_range<3>({threads[2], threads[1], threads[0]}, {group[2], group[1], group[0]}),
                *static_cast<sycl::kernel*>(kernel));
        });
        for (auto& one : copies)
            if (one.second.written) queue->memcpy(one.first, one.second.device, one.second.bytes);
        queue->wait_and_throw();
        times[0] = event.get_profiling_info<sycl::info::event_profiling::command_start>();
        times[1] = event.get_profiling_info<sycl::info::event_profiling::command_end>();
    });
}

}  // extern "C"
