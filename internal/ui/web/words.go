package web

import (
	"net/http"
	"strings"
)

// languageOf is the first language of the browser's wish that the page has.
func languageOf(r *http.Request) string {
	for wish := range strings.SplitSeq(r.Header.Get("Accept-Language"), ",") {
		wish = strings.ToLower(strings.TrimSpace(wish))
		switch {
		case strings.HasPrefix(wish, "zh"):
			return "zh"
		case strings.HasPrefix(wish, "en"):
			return "en"
		}
	}
	return "en"
}

// wordsOf translates for this request.
func wordsOf(r *http.Request) func(string) string { return words(languageOf(r)) }

// words translates the page's own words. Sentences about devices and jobs are those of the command line, in English.
func words(language string) func(string) string {
	if language != "zh" {
		return func(english string) string { return english }
	}
	chinese := chinese()
	return func(english string) string {
		if word, ok := chinese[english]; ok {
			return word
		}
		return english
	}
}

func chinese() map[string]string {
	return map[string]string{
		"Devices": "设备", "Queue": "队列", "Services": "服务", "Findings": "诊断", "History": "历史", "Parts of this page": "本页内容",
		"Skip to the devices": "跳到设备", "Token": "令牌", "Unlock actions": "启用操作", "The connection is lost; trying again.": "连接已断开，正在重试。", "Done.": "已完成。",
		"Driver": "驱动", "Load": "负载", "Memory": "显存", "Temperature": "温度", "Power": "功率", "The last day": "最近一天", "the last day": "最近一天",
		"free": "空闲", "leased": "已租用", "shared": "共享", "draining": "停用", "busy": "忙", "use unknown": "占用未知", "degraded": "降级", "unhealthy": "不健康", "unknown": "未知",
		"slowed down": "已降频", "since": "自", "its command has ended": "命令已结束", "process": "进程", "without a lease": "没有租约", "another PID namespace": "其他 PID 命名空间", "display": "显示",
		"release": "释放", "evict": "结束进程", "drain": "停用", "undrain": "恢复使用", "cancel": "取消",
		"There is no device.": "没有设备。", "Paused: no job is started.": "已暂停：不启动任务。", "Nothing waits.": "没有等待的任务。",
		"Job": "任务", "Who": "用户", "State": "状态", "Asks for": "申请", "Since": "开始时间", "May start": "预计开始", "own": "自己",
		"waiting": "等待", "running": "运行", "held": "暂缓", "after": "等待其他任务", "done": "完成", "failed": "失败", "starting": "启动中", "refused": "被拒绝",
		"No service is up.": "没有运行的服务。", "error": "错误", "warning": "警告", "info": "信息", "ok": "正常",
		"user": "用户", "gpu": "设备", "command": "命令", "by user": "按用户", "by gpu": "按设备", "by command": "按命令", "Hours granted": "租用小时", "used": "使用", "idle": "闲置", "not measured": "未测量", "others": "其他", "Leases": "租约", "No lease has ended yet.": "还没有结束的租约。",
		"The devices are being read.": "正在读取设备。",
	}
}
