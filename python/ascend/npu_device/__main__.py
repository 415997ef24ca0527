from npu_device._script import run

run("npu_device")
