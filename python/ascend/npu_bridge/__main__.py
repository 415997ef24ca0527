from npu_device._script import run

run("npu_bridge")
