// Readers of models for sterna.hpp: ONNX, OpenVINO IR, and graphs in JSON. See sterna_models.h.
#ifndef STERNA_MODELS_HPP
#define STERNA_MODELS_HPP

#include "sterna.hpp"
#include "sterna_models.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sterna {

// The options of `load`, one call each.
class load_options {
public:
    // The file of constants of a model of OpenVINO, if it is not beside it.
    load_options &constants(std::string path) {
        constants_ = std::move(path);
        return *this;
    }
    // Reads files instead of mapping them.
    load_options &own_constants(bool is) noexcept {
        own_constants_ = is;
        return *this;
    }
    // Makes a layer that the reader does not know an op of the program's own.
    load_options &partial(bool is) noexcept {
        partial_ = is;
        return *this;
    }
    // Gives a named open dim a length.
    load_options &dim(std::string name, std::int64_t length) {
        dims_.emplace_back(std::move(name), length);
        return *this;
    }

private:
    friend model load(const std::string &path, const load_options &options);
    friend model load_onnx(const void *data, std::size_t size, const load_options &options);

    // Calls a reader with the options; what they point to is this object's.
    template <typename Call>
    model read(Call &&call) const {
        std::vector<sterna_models_dim_t> dims;
        for (const auto &[name, length] : dims_) dims.push_back({name.c_str(), length});
        const sterna_models_options_t options {sizeof options, constants_.empty() ? nullptr : constants_.c_str(),
                own_constants_, partial_, dims.size(), dims.data()};
        sterna_model_t *made = nullptr;
        const sterna_status_t answer = call(&made, &options);
        if (answer != STERNA_STATUS_SUCCESS)
            throw error(static_cast<status>(answer), sterna_models_last_error_message());
        return model(made);
    }

    std::string constants_;
    bool own_constants_ = false, partial_ = false;
    std::vector<std::pair<std::string, std::int64_t>> dims_;
};

// The model of a file, for a session.
inline model load(const std::string &path, const load_options &options = {}) {
    return options.read([&](auto made, auto of) { return sterna_models_open(made, path.c_str(), of); });
}

// The model of ONNX that is in memory.
inline model load_onnx(const void *data, std::size_t size, const load_options &options = {}) {
    return options.read([&](auto made, auto of) { return sterna_models_read_onnx(made, data, size, of); });
}

} // namespace sterna

#endif
